"""The lessons as a static site.

    python tools/pages.py              runs every notebook, then builds the site into public/
    python tools/pages.py --stored     shows the outputs stored in the repository instead; quick

A cell that fails, a broken link or any other Sphinx warning fails the build, and public/ stays as it
was. With GITHUB_REPOSITORY=OWNER/NAME in the environment (GitHub Actions sets it), lessons link to Binder and Colab.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from cells import COLLAPSED, kind, uncovered
from notebooks import mime_types, notebook_metadata

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("LICENSE", "README.md", "binder", "deploy", "docs", "notebooks")  # all that a page links to
CELL_SECONDS = 600  # many times what the slowest cell takes on two slow cores
# The site's first page is made from the README (see site/index.md), so links to the README lead there.
README_LINK = re.compile(r"(\]\((?:\.\./)*)README\.md")
CODE = re.compile(
    r"(^ *(`{3,}|~{3,}).*?^ *\2 *$|^#+ [^\n]*$|`+[^`]*`+|\$[^$\n]*\$|<[^>]*>|\]\([^)]*\))", re.DOTALL | re.MULTILINE
)
UNIT = r"(?:bytes?|[KMGT]i?B)\b"
BYTES = re.compile(rf"\d[ \n]{UNIT}(?: = [\d.,]+ {UNIT})?")


def build(output: Path, stored: bool) -> None:
    """Build the site into `output`, which is replaced at the end.

    Raises CellExecutionError and its like when a lesson does not run, CalledProcessError when Sphinx finds something.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as scratch:
        sources, html = Path(scratch, "sources"), Path(scratch, "html")
        collect(sources)
        machine = "" if stored else run_lessons(sources / "notebooks")
        join_sizes(sources / "notebooks")
        command = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet", "--fail-on-warning", "--keep-going"]
        paths = ["--conf-dir", ROOT / "site", "--doctree-dir", Path(scratch, "doctrees"), sources, html]
        subprocess.run([*command, "--define", f"machine={machine}", *paths], check=True)
        if output.exists():
            output.rename(Path(scratch, "before"))
        html.rename(output)


def collect(sources: Path) -> None:
    """Copy all pages into one folder, laid out as in the repository: a link that works there works on the site."""
    sources.mkdir()
    shutil.copy(ROOT / "site" / "index.md", sources)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        else:
            shutil.copy(ROOT / name, sources)
    for path in [*sources.rglob("*.md"), *sources.rglob("*.ipynb")]:
        text = path.read_text(encoding="utf-8")
        text = README_LINK.sub(r"\1index.md", text)
        path.write_text(unbroken(text) if path.suffix == ".md" else text, encoding="utf-8")
    for path in sources.rglob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                fold(cell)
            else:
                cell.source = unbroken(cell.source)
        nbformat.write(notebook, path)


def unbroken(text: str) -> str:
    """Markdown in which sizes such as "524.29 MB = 500.00 MiB" stay on one line. Headings, code and tags stay."""
    parts = CODE.split(text)  # prose, then code and the group inside it, in turns
    return "".join(joined(part) if index % 3 == 0 else part for index, part in enumerate(parts) if index % 3 != 2)


def joined(text: str) -> str:
    """Text or HTML in which sizes stay on one line."""
    return BYTES.sub(lambda found: re.sub("[ \n]", "\N{NO-BREAK SPACE}", found[0]), text)


def join_sizes(folder: Path) -> None:
    """Do so in the tables and pictures that the notebooks' cells put out."""
    for path in folder.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                if "text/html" in output.get("data", {}):
                    output.data["text/html"] = joined(output.data["text/html"])
        nbformat.write(notebook, path)


def fold(cell: nbformat.NotebookNode) -> None:
    """Readers of a page see all outputs at once, and can unfold the source that JupyterLab collapses."""
    cell.outputs = uncovered(cell)
    if kind(cell) in COLLAPSED:
        cell.metadata.tags = [*cell.metadata.get("tags", []), "hide-input"]


def run_lessons(folder: Path) -> str:
    """Run the notebooks in `folder` in place. Returns what they ran on."""
    for path in sorted(folder.glob("*.ipynb")):
        started = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            extra_arguments=["--Application.log_level=ERROR"],  # its warning about TCP is meant for servers
        ).execute()
        # A page has no kernel: of a widget, its picture stays.
        for rule in (notebook_metadata, mime_types):
            list(rule(notebook, fix=True))
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.perf_counter() - started:.0f} s", flush=True)
    return describe_machine()


def describe_machine() -> str:
    import torch

    from llmlesson.limits import usable_cpus
    from llmlesson.measure.machine import device_name

    name = device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return f"{name}, {usable_cpus()} CPUs, PyTorch {torch.__version__}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the site from the lessons.")
    parser.add_argument("--stored", action="store_true", help="show the stored outputs; run nothing")
    parser.add_argument("--output", type=Path, default=ROOT / "public", metavar="DIR", help="default: public/")
    options = parser.parse_args()
    try:
        build(options.output.resolve(), options.stored)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        print(f"A lesson does not run, so there is no new site:\n{error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError:
        print("Sphinx found something to mend (see above), so there is no new site.", file=sys.stderr)
        return 1
    print(f"{options.output}: open index.html, or run: python -m http.server --directory {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
