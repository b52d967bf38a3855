"""The notebook gate: what a committed notebook may and may not carry.

    python tools/notebooks.py check [PATHS]          one line per finding, exit status 1 if there is any
    python tools/notebooks.py check --fix [PATHS]    fixes what it can, then reports the rest

PATHS are notebooks or folders; without any, `notebooks/`. Committed outputs are those that a reader on a web page
without a kernel should see. So widget state and plotly JSON are removed (they are blank there), and so is everything
that differs between machines and would fill each commit with noise: paths, times, local kernel names.

Execution counts are 1..n over the non-empty code cells, as after Restart-and-Run-All. Null for all would be quieter,
but nbval fails a cell that has outputs and no count, and doesn't compare one that has neither.

A learner who opens a lesson must not see an answer before predicting it, so the metadata says what is hidden on opening
(see tools/cells.py). `--fix` sets it, also after outputs were stored again.

A time that a cell prints counts as measured unless the cell is tagged `nbval-check-output`: its output is the same on
every machine, so it can only be computed. A cell tagged `measured` keeps no outputs.
"""

import argparse
import copy
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode
from nbformat.validator import iter_validate

from cells import COLLAPSED, COMMENTS, EXPLAIN, kind, mixed, on_opening, uncovered, unexplained
from lesson_time import STATED, count

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 1_000_000
MAX_PNG_BYTES = 200_000
MAX_CELLS = 45  # that are open when a learner comes; a lesson should have about 40

WIDGET = "application/vnd.jupyter.widget-view+json"
PLOTLY = "application/vnd.plotly.v1+json"
MIME_TYPES = {"text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml", "image/png"}
TAGS = {"nbval-check-output", "nbval-ignore-output", "nbval-skip", "measured"}
TIMING_METADATA = ("execution", "ExecuteTime", "papermill")
# What JupyterLab itself writes, so that saving in JupyterLab changes nothing.
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}

LOCAL_PATH = re.compile(
    r"(?<![\w.~)+-])(?:/(?:home|Users)/[\w.]|/(?:root)/|/tmp/[\w.]|/private/(?:tmp|var)/|/var/folders/|"
    + re.escape(ROOT.as_posix())
    + r"\b)[^\s'\"<>]*"
    # A drive letter, and two steps down: "Q:\n" in a string is an escape and "f:\mathbb{R}" is mathematics.
    r"|(?<!\w)[A-Za-z]:(?:\\{1,2}(?:Users|Program Files|(?![nrt])\w[\w.-]*)\\|/\w+/)[^\s'\"<>]*"
)
MEASURED_TIME = re.compile(
    r"\d\s?(?:ns|µs|μs|us|ms)\b"
    r"|\d\.\d+\s?s\b|\d\s(?:s|sec|secs|seconds?)\b"
    r"|\b(?:tok|toks|tokens?|steps?)\s?(?:/|per)\s?(?:s|sec|second)\b"
    r"|\d\s?[kMGT]?(?:i?B|FLOPs?|ops?)/s\b"
    r"|\b(?:Wall time|CPU times):"
)
UNSEEN_MARKUP = re.compile(r"<(style|script)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


class Finding(NamedTuple):
    """One thing to fix; `cell` is an index into the notebook's cells, or None for the notebook itself."""

    cell: int | None
    what: str
    mend: str


# Each rule below yields what it finds and, with fix=True, fixes what it can in place.
# The order of RULES matters to --fix: outputs are cleared before what remains is looked at.


def notebook_metadata(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    for key in ("widgets", "papermill"):
        if key in notebook.metadata:
            yield Finding(None, f"metadata.{key} is stored", "--fix drops it")
            if fix:
                del notebook.metadata[key]
    if notebook.metadata.get("kernelspec") != KERNELSPEC:
        yield Finding(None, f"kernelspec is {dict(notebook.metadata.get('kernelspec', {}))}", "--fix writes python3")
        if fix:
            notebook.metadata["kernelspec"] = dict(KERNELSPEC)
    if "version" in notebook.metadata.get("language_info", {}):
        yield Finding(None, "language_info names this machine's Python version", "--fix drops it")
        if fix:
            del notebook.metadata["language_info"]["version"]


def cell_ids(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    if notebook.nbformat_minor != 5:
        yield Finding(None, f"nbformat 4.{notebook.nbformat_minor}", "--fix makes it 4.5, which has cell ids")
        if fix:
            notebook.nbformat_minor = 5
    taken: set[str] = set()
    for index, cell in enumerate(notebook.cells):
        if "id" in cell and cell.id in taken:
            yield Finding(index, f"cell id {cell.id!r} is used twice", "give the later cell another id by hand")
        taken.add(cell.get("id"))
    for index, cell in enumerate(notebook.cells):
        if "id" not in cell:
            yield Finding(index, "the cell has no id", "--fix gives it one made from its place and source")
            if fix:
                cell["id"] = new_id(index, cell, taken)
                taken.add(cell.id)


def new_id(index: int, cell: NotebookNode, taken: set[str]) -> str:
    """An id that depends only on the notebook, so that two people who fix the same notebook get the same file."""
    salt = 0
    while True:
        text = f"{index}\n{cell.cell_type}\n{cell.source}\n{salt}"
        identifier = hashlib.sha256(text.encode()).hexdigest()[:8]
        if identifier not in taken:
            return identifier
        salt += 1


def cell_count(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    seen = sum(kind(cell) not in COLLAPSED for cell in notebook.cells)
    if seen > MAX_CELLS:
        yield Finding(None, f"{seen} cells, more than {MAX_CELLS}", "split it or join cells: one sitting")


def tags(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    for index, cell in code_cells(notebook):
        found = tags_of(cell)
        for tag in sorted(found - TAGS):
            yield Finding(index, f"unknown tag {tag!r}", f"use one of {', '.join(sorted(TAGS))}, or none")
        if "nbval-check-output" in found and len(found & TAGS) > 1:
            others = ", ".join(sorted(found & TAGS - {"nbval-check-output"}))
            yield Finding(index, f"nbval-check-output contradicts {others}", "keep one of them")


def timing_metadata(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    for index, cell in enumerate(notebook.cells):
        for key in TIMING_METADATA:
            if key in cell.metadata:
                yield Finding(index, f"execution times in metadata.{key}", "--fix drops them")
                if fix:
                    del cell.metadata[key]


def errors_and_warnings(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    for index, cell in code_cells(notebook):
        keep = []
        for output in cell.outputs:
            if output.output_type == "error":
                yield Finding(
                    index, f"stored error {output.ename}: {output.evalue}"[:120], "repair the cell, run again"
                )
            elif output.output_type == "stream" and output.name == "stderr":
                line = (output.text.strip().splitlines() or [""])[0]
                yield Finding(index, f"stored stderr: {line}"[:120], "silence the cause and run again; --fix drops it")
            else:
                keep.append(output)
        if fix:
            cell.outputs = keep


def mime_types(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    known = {WIDGET: "a widget view", PLOTLY: "plotly JSON"}
    for index, cell in code_cells(notebook):
        for output in cell.outputs:
            for mime in sorted(set(output.get("data", {})) - MIME_TYPES):
                what = f"{known.get(mime, 'an output')} ({mime}), blank on a page without a kernel"
                yield Finding(index, what, "show HTML, SVG or text beside it; --fix drops it from the bundle")
                if fix:
                    del output.data[mime]
                    output.metadata.pop(mime, None)
            if len(output.get("data", {}).get("image/png", "")) * 3 // 4 > MAX_PNG_BYTES:
                yield Finding(index, f"a PNG of more than {MAX_PNG_BYTES:,} bytes", "make it smaller, or an SVG")
        if fix:
            cell.outputs = [output for output in cell.outputs if output.get("data") != {}]


def measured_times(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    for index, cell in code_cells(notebook):
        if "nbval-check-output" in tags_of(cell):
            continue
        shown = [match.group() for text in output_texts(cell, seen=True) if (match := MEASURED_TIME.search(text))]
        if "measured" in tags_of(cell) and uncovered(cell):
            yield Finding(index, "tagged measured, with stored outputs", "--fix clears them")
        elif shown:
            mend = "tag the cell measured and clear it (--fix clears), or nbval-check-output if it is computed"
            yield Finding(index, f"a measured time in the output: {shown[0]!r}", mend)
        else:
            continue
        if fix:
            cell.outputs = []


def local_paths(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    for index, cell in enumerate(notebook.cells):
        if match := LOCAL_PATH.search(cell.source):
            yield Finding(index, f"a path of one machine in the source: {match.group()}", "write a relative one, or ~")
        if cell.cell_type == "code":
            found = [match.group() for text in output_texts(cell) if (match := LOCAL_PATH.search(text))]
            if found:
                yield Finding(index, f"a path of one machine in the output: {found[0]}", "do not show it; --fix clears")
                if fix:
                    cell.outputs = []


def execution_counts(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    count = 0
    for index, cell in code_cells(notebook):
        if cell.source.strip():
            count += 1
        expected = count if cell.source.strip() else None
        results = [output for output in cell.outputs if output.output_type == "execute_result"]
        if any(node.execution_count != expected for node in [cell, *results]):
            yield Finding(index, f"execution count is {cell.execution_count}, not {expected}", "--fix numbers 1..n")
            if fix:
                for node in [cell, *results]:
                    node.execution_count = expected


def answers(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    """Runs last: whether outputs are to be hidden depends on which there are."""
    for index in unexplained(notebook):
        yield Finding(index, "the text behind a reveal is visible on opening", f"let a line {EXPLAIN} begin it")
    for index, hidden, outputs in on_opening(notebook):
        cell, what = notebook.cells[index], kind(notebook.cells[index])
        if inside := mixed(cell):
            mend = "move that to a cell of its own"
            yield Finding(index, f"a {what} is collapsed on opening, and {inside} with it", mend)
        if cell.cell_type == "code" and hidden["source_hidden"] and not cell.source.startswith("#"):
            mend = "--fix writes one" if what in COMMENTS else "begin with one that says what is drawn"
            yield Finding(index, f"a {what} is collapsed to its first line, which is no comment", mend)
            if fix and what in COMMENTS:
                cell.source = f"{COMMENTS[what]}\n{cell.source}"
        for key, name in (("source_hidden", "source"), ("outputs_hidden", "stored output")):
            if cell.metadata.get("jupyter", {}).get(key, False) != hidden[key]:
                now = "visible" if hidden[key] else "hidden"
                yield Finding(index, f"the {name} of a {what} cell is {now} on opening", f"--fix sets jupyter.{key}")
        if cell.cell_type == "code" and cell.outputs != outputs:
            found = "has no cover" if len(outputs) > len(cell.outputs) else "has a cover, and hides nothing"
            yield Finding(index, f"the stored output of a {what} {found}", "--fix adds or drops it (tools/cells.py)")
            if fix:
                cell.outputs = outputs
        if fix:
            jupyter = {key: True for key in hidden if hidden[key]}
            # JupyterLab writes "collapsed" beside outputs_hidden; with it, saving there changes nothing.
            for key, value in {"jupyter": jupyter, "collapsed": hidden["outputs_hidden"]}.items():
                cell.metadata.pop(key, None)
                if value:
                    cell.metadata[key] = value


def stated_time(notebook: NotebookNode, fix: bool) -> Iterator[Finding]:
    """What the head of a lesson says follows from what is in it."""
    head = next(iter(notebook.cells), None)
    if head is None or not re.match(r"# \d\d", head.source):
        return
    wanted = count(notebook).stated
    if wanted not in head.source:
        yield Finding(0, f"the head does not say {wanted!r}", "--fix writes it in place of the time that is stated")
        if fix:
            head.source = STATED.sub(wanted, head.source, count=1)


RULES = (
    stated_time,
    notebook_metadata,
    cell_ids,
    cell_count,
    tags,
    timing_metadata,
    errors_and_warnings,
    mime_types,
    measured_times,
    local_paths,
    execution_counts,
    answers,
)


def code_cells(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    return ((index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code")


def tags_of(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def output_texts(cell: NotebookNode, seen: bool = False) -> Iterator[str]:
    """The text of each output; with `seen`, only what a reader sees of it (no tags, no style sheets)."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text
        for mime, text in output.get("data", {}).items():
            if mime in {"text/html", "image/svg+xml"}:
                yield " ".join(UNSEEN_MARKUP.sub(" ", text).split()) if seen else text
            elif isinstance(text, str) and mime.startswith("text/"):
                yield text


def schema_errors(notebook: NotebookNode) -> list[str]:
    """What the nbformat 4.5 schema says, apart from missing ids, which have their own rule."""
    complete = copy.deepcopy(notebook)
    list(cell_ids(complete, fix=True))
    return [error.message for error in iter_validate(complete, version=4, version_minor=5)]


def check_file(path: Path, fix: bool = False) -> list[Finding]:
    """What is wrong with the notebook at `path`; with `fix`, what is still wrong after fixing it in place."""
    text = path.read_text(encoding="utf-8")
    try:
        notebook = nbformat.v4.reads(text)
        if notebook.nbformat != 4:
            return [Finding(None, f"nbformat {notebook.nbformat}", "open and save it in JupyterLab")]
        errors = schema_errors(notebook)
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        return [Finding(None, f"not a notebook: {error!r}"[:200], "restore it; a merge may have left its marks")]
    if errors:
        return [Finding(None, f"not valid nbformat 4.5: {errors[0]}"[:200], "repair it by hand")]

    canonical = nbformat.v4.writes(notebook) + "\n"
    findings = [finding for rule in RULES for finding in rule(notebook, fix)]
    if fix:
        mended = nbformat.v4.writes(notebook) + "\n"
        if mended != text:
            path.write_text(mended, encoding="utf-8", newline="\n")
        return check_file(path)
    if text != canonical:
        findings.append(Finding(None, "not written the way nbformat writes (indent 1, sorted keys)", "--fix writes it"))
    if path.stat().st_size >= MAX_BYTES:
        findings.append(Finding(None, f"{path.stat().st_size:,} bytes, limit {MAX_BYTES:,}", "drop its large outputs"))
    return findings


def find_notebooks(paths: list[Path]) -> list[Path]:
    found = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.ipynb")))]
    return [file for file in found if ".ipynb_checkpoints" not in file.parts]


def describe(path: Path, finding: Finding) -> str:
    place = "notebook" if finding.cell is None else f"cell {finding.cell}"
    return f"{path.as_posix()}: {place}: {finding.what} -> {finding.mend}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the committed notebooks.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="report what a committed notebook must not carry")
    check.add_argument("paths", nargs="*", type=Path, metavar="PATHS", help="notebooks or folders (notebooks/)")
    check.add_argument("--fix", action="store_true", help="mend what can be mended first")
    options = parser.parse_args(arguments)

    missing = [path.as_posix() for path in options.paths if not path.exists()]
    if missing:
        parser.error(f"no such notebook or folder: {', '.join(missing)}")
    count = 0
    files = find_notebooks(options.paths or [ROOT / "notebooks"])
    for path in files:
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for finding in check_file(path, options.fix):
            print(describe(shown, finding))
            count += 1
    print(f"{len(files)} notebooks, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
