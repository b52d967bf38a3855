"""JupyterLab, its kernel, and the extensions that show widgets and plots.

The checks read the files that JupyterLab reads, because importing or starting it takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from llmlesson.doctor.commands import pip_install, python, quoted, run, set_variable
from llmlesson.doctor.finding import Finding, ok, problem, short, warning
from llmlesson.doctor.python import environment, installed, requirements_of
from llmlesson.files.folders import write_error

LAB_NEEDED, WIDGETS_NEEDED = 4, 8
WIDGETS = "@jupyter-widgets/jupyterlab-manager"
PLOTS = "jupyterlab-plotly"
PREFIX_SECONDS = 10


def lab() -> Finding:
    """Whether JupyterLab is installed here, `jupyter lab` starts it, and it can write its own files."""
    version = installed("jupyterlab")
    if version is None and installed("notebook") is None:
        what = "not installed in this environment; that's fine if Colab or VS Code shows the notebooks"
        return warning("JupyterLab", what, pip_install("jupyterlab", "ipykernel"))
    if version and int(version.split(".")[0]) < LAB_NEEDED:
        what = f"{version} is older than {LAB_NEEDED}, the oldest that the course was tested with"
        return warning("JupyterLab", what, pip_install("--upgrade", f"jupyterlab>={LAB_NEEDED}"))
    if finding := unwritable_runtime():
        return finding
    name, program = ("JupyterLab", "jupyter-lab") if version else ("Notebook", "jupyter-notebook")
    start = f"{python()} -m {'jupyterlab' if version else 'notebook'} notebooks/00_start_here.ipynb"
    found = shutil.which(program)
    if found is None:
        return warning("JupyterLab", f"{program} is not on PATH, so this environment is not activated", start)
    if not belongs_here(found):
        return warning("JupyterLab", f"the command starts {short(found)}, which belongs to another Python", start)
    return ok("JupyterLab", f"{name} {version or installed('notebook')}, started from this environment")


def unwritable_runtime() -> Finding | None:
    """JupyterLab doesn't start if it can't write the files about its running server."""
    from jupyter_core.paths import jupyter_runtime_dir

    folder = Path(jupyter_runtime_dir())
    error = write_error(folder)
    if error is None:
        return None
    what = f"can't start: it can't write to {short(folder)} ({error})"
    variable = "JUPYTER_RUNTIME_DIR" if "JUPYTER_RUNTIME_DIR" in os.environ else "JUPYTER_DATA_DIR"
    return problem("JupyterLab", what, set_variable(variable, "A_FOLDER_OF_YOURS"))


def belongs_here(program: str) -> bool:
    """Whether it is in a folder where this Python installs the programs of its packages."""
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    ours = {Path(sys.executable).parent.resolve(), *(Path(sysconfig.get_path("scripts", s)).resolve() for s in schemes)}
    return Path(program).parent.resolve() in ours


def kernel() -> Finding:
    """Whether the notebooks' kernel, python3, runs in this environment."""
    if installed("ipykernel") is None:
        what = "ipykernel is missing, so notebooks can't run in this environment"
        return (problem if installed("jupyterlab") else warning)("kernel", what, pip_install("ipykernel"))
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    install = f"{python()} -m ipykernel install --sys-prefix"
    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        return problem("kernel", "there is no kernel called python3", install)
    program = spec.argv[0]
    what = f"python3 runs this environment, {environment()}"
    # Jupyter replaces a bare name by its own Python.
    if program in ("python", "python3", f"python3.{sys.version_info.minor}"):
        return ok("kernel", what)
    prefix = prefix_of(program)
    if prefix == os.path.normcase(os.path.realpath(sys.prefix)):
        return ok("kernel", what)
    if Path(spec.resource_dir).resolve().is_relative_to(Path(sys.prefix).resolve()):
        mend = install
    else:  # it takes precedence over this environment's own, which is found once it is gone
        mend = f"{python()} -m jupyter kernelspec remove python3"
    where = f"(according to {short(spec.resource_dir)})"
    if prefix is None:
        return problem("kernel", f"python3 should start {short(program)}, which can't be run {where}", mend)
    return problem("kernel", f"python3 starts {short(program)}, which is a different Python {where}", mend)


def prefix_of(program: str) -> str | None:
    """The environment of another Python, which we run to ask; None if it doesn't answer."""
    command = [program, "-c", "import os, sys; print(os.path.normcase(os.path.realpath(sys.prefix)))"]
    try:
        result = run(command, PREFIX_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def widgets() -> Finding:
    """Whether ipywidgets and its browser packages match, by ipywidgets' own requirements."""
    version = installed("ipywidgets")
    if version is None:
        return problem("widgets", "ipywidgets is missing", pip_install("ipywidgets"))
    if (installed("jupyterlab") or installed("notebook")) and int(version.split(".")[0]) < WIDGETS_NEEDED:
        what = f"ipywidgets {version} is for Colab and JupyterLab 3; JupyterLab 4 needs {WIDGETS_NEEDED}"
        return problem("widgets", what, pip_install("--upgrade", f"ipywidgets>={WIDGETS_NEEDED}"))
    # Their names contain - or _, depending on the release.
    halves = [r for r in requirements_of("ipywidgets") if "widgets" in r.name]
    for half in halves:
        found = installed(half.name)
        if found is None or not half.specifier.contains(found, prereleases=True):
            what = f"ipywidgets {version} needs {half.name} {half.specifier}, but {found or 'none'} is installed"
            return problem("widgets", what, pip_install("--upgrade", str(half)))
    versions = ", ".join(f"{half.name} {installed(half.name)}" for half in halves)
    return extension("widgets", WIDGETS, "jupyterlab_widgets", f"ipywidgets {version}, {versions}")


def plots() -> Finding:
    """Whether plotly can make figures and JupyterLab can show them, which also takes nbformat."""
    version = installed("plotly")
    if version is None:
        return problem("plots", "plotly is missing", pip_install("plotly"))
    if installed("nbformat") is None:
        return problem("plots", "plotly can't show figures in a notebook without nbformat", pip_install("nbformat"))
    try:
        import plotly.graph_objects as go

        go.Figure(go.Scatter(x=[1, 2], y=[1, 4])).to_html(include_plotlyjs=False)
    except Exception as error:
        what = f"plotly {version} can't make a figure. {type(error).__name__}: {error}"
        return problem("plots", what, pip_install("--force-reinstall", "plotly"))
    return extension("plots", PLOTS, "plotly", f"plotly {version}")


def extension(name: str, extension: str, package: str, versions: str) -> Finding:
    """Whether JupyterLab finds the extension of `package`, and it isn't disabled."""
    from jupyter_core.paths import jupyter_path

    if installed("jupyterlab") is None and installed("notebook") is None:
        return ok(name, versions)
    found = [(folder, read_json(folder / "package.json").get("version")) for folder in folders_of(extension)]
    found = [(folder, version) for folder, version in found if version]
    if not found:
        where = ", ".join(short(path) for path in jupyter_path("labextensions"))
        return problem(
            name,
            f"{versions}, but JupyterLab can't find {extension} (in {where})",
            pip_install("--force-reinstall", "--no-deps", package),
        )
    # A plugin is named after its extension, with a colon in between.
    if any(name.partition(":")[0] == extension for name in disabled_extensions()):
        mend = f"{python()} -m jupyter labextension enable {extension}"
        return problem(name, f"{versions}, but {extension} is disabled in JupyterLab", mend)
    (folder, first), others = found[0], {version for _, version in found[1:]}
    if others - {first} and not folder.is_relative_to(sys.prefix):
        what = f"{versions}, but another copy of {extension} ({first}) hides this environment's"
        return warning(name, what, f"remove the folder {quoted(folder)}")
    return ok(name, f"{versions}, enabled in JupyterLab")


def folders_of(extension: str) -> list[Path]:
    """Where JupyterLab looks for the extension; it takes the first that exists."""
    from jupyter_core.paths import jupyter_path

    return [Path(path, *extension.split("/")) for path in jupyter_path("labextensions")]


def disabled_extensions() -> set[str]:
    """Names from JupyterLab's page_config.json files; later folders override earlier ones."""
    from jupyter_core.paths import jupyter_config_path

    lab_folder = os.environ.get("JUPYTERLAB_DIR") or os.path.join(sys.prefix, "share", "jupyter", "lab")
    files = [Path(lab_folder, "settings", "page_config.json")]
    files += [Path(path, "labconfig", "page_config.json") for path in reversed(jupyter_config_path())]
    disabled: dict[str, bool] = {}
    for file in files:
        entry = read_json(file).get("disabledExtensions", {})
        disabled |= entry if isinstance(entry, dict) else dict.fromkeys(entry, True)
    return {name for name, value in disabled.items() if value}


def read_json(file: Path) -> dict[str, Any]:
    """Empty if the file doesn't exist or holds nothing useful."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
