# @title In Google Colab this cell installs the course. Anywhere else it does nothing. { display-mode: "form" }
COURSE = "llmlesson @ git+https://github.com/OWNER/REPOSITORY@BRANCH"


def install_course():
    """Install with pip, but keep Colab's own torch and numpy, which are built for its GPUs and its other packages."""
    import importlib
    import subprocess
    import sys
    import tempfile
    from importlib.metadata import distributions, packages_distributions
    from pathlib import Path

    before = {package.name: package.version for package in distributions()}
    kept = [f"{name}=={before[name]}" for name in ("torch", "numpy") if name in before]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(kept), encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "install", "--no-color", "--constraint", str(constraints), COURSE]
        ran = subprocess.run(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
    if ran.returncode:
        said = "\n".join(ran.stdout.strip().splitlines()[-20:])
        raise RuntimeError(
            f"The course could not be installed beside Colab's {' and '.join(kept)}, which stay as they were.\n\n"
            f"{said}\n\n"
            "If pip reports a conflict above, choose the newest runtime (Runtime > Change runtime type > Runtime "
            "version) and run this cell again. Installing another torch by hand may break other packages that Colab "
            "has installed. The course's README names other places to run it."
        )
    importlib.invalidate_caches()
    after = {package.name: package.version for package in distributions()}
    packages = packages_distributions()
    loaded = {name for module in set(sys.modules) & set(packages) for name in packages[module]}
    stale = sorted(name for name in loaded & set(before) if before[name] != after.get(name))
    if stale:
        raise RuntimeError(
            f"This session loaded packages that have now been updated ({', '.join(stale)}). "
            "Choose Runtime > Restart session, then run all cells again."
        )
    return after


try:
    from google.colab import output
except ImportError:
    pass  # not in Colab
else:
    if not install_course()["ipywidgets"].startswith("7."):  # on its own, Colab only draws widgets of version 7
        output.enable_custom_widget_manager()
    print("The course is installed.")
