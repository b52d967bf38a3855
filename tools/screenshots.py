"""Screenshots of an executed notebook in JupyterLab, in the light and the dark theme.

    python tools/screenshots.py NOTEBOOK OUTDIR

Runs a copy of the notebook (its whole folder is copied, so that pictures beside it are found) and writes
NAME-light.png and NAME-dark.png at full height, and the same in readable parts, NAME-light-01.png and so on.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser.lab import open_lab, run_browser
from browser.server import run_server

PART_HEIGHT = 1200


def take(notebook: Path, outdir: Path) -> list[str]:
    """Saves the pictures; returns the errors that cells and the browser's console showed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "notebooks")
        shutil.copytree(notebook.parent, folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        with run_server(folder, Path(scratch)) as server, run_browser() as browser, open_lab(browser, server) as lab:
            lab.open_notebook(notebook.name)
            lab.run_all()
            lab.page.wait_for_timeout(1000)  # a widget is drawn after its cell has finished
            for theme in ("light", "dark"):
                lab.set_theme(theme)
                path = outdir / f"{notebook.stem}-{theme}.png"
                lab.screenshot(path)
                lab.screenshot(path, PART_HEIGHT)
            return lab.error_outputs() + lab.console_errors


def main() -> int:
    parser = argparse.ArgumentParser(description="Save light and dark pictures of an executed notebook.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("outdir", type=Path)
    options = parser.parse_args()
    if not options.notebook.is_file():
        parser.error(f"no such notebook: {options.notebook}")
    options.outdir.mkdir(parents=True, exist_ok=True)
    errors = take(options.notebook, options.outdir)
    for error in errors:
        print(f"error: {error}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
