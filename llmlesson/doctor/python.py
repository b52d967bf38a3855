"""Python and the installed packages, against what the package itself says that it needs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING

from llmlesson.doctor.commands import install_course, pip_install
from llmlesson.doctor.finding import Finding, ok, problem, short, warning

if TYPE_CHECKING:
    from packaging.requirements import Requirement

COURSE = "llmlesson"
# Not needed to use the package, but by the course where it runs here and not in a service such as Colab.
FRONT_ENDS = ("jupyterlab", "ipykernel")


def version() -> Finding:
    """This Python against requires-python."""
    from packaging.specifiers import SpecifierSet

    have = platform.python_version()
    if installed(COURSE) is None:
        return ok("Python", have)  # what is wrong then, the line on packages says
    needed = metadata.metadata(COURSE)["Requires-Python"]
    if not SpecifierSet(needed).contains(have, prereleases=True):
        mend = f"install Python {needed}, make a new virtual environment with it, and install the course there"
        return problem("Python", f"{have} is not supported: the course needs {needed}", mend)
    return ok("Python", f"{have} (needed: {needed})")


def packages() -> Iterator[Finding]:
    """What the package requires; then what those packages require of each other."""
    if installed(COURSE) is None:
        yield problem("packages", f"{COURSE} is not installed in this Python, {environment()}", install_course())
        return
    unmet = list(unmet_requirements())
    own = [entry for entry in unmet if entry[0] == COURSE]
    others = [entry for entry in unmet if entry[0] != COURSE]
    if own:
        what = "; ".join(describe(requirement, found) for _, requirement, found in own)
        yield problem("packages", what, pip_install(*(str(requirement) for _, requirement, _ in own)))
    if others:
        what = "; ".join(f"{describe(requirement, found)} by {name}" for name, requirement, found in others)
        yield warning("packages", what, pip_install(*(bare(requirement) for _, requirement, _ in others)))
    if not unmet:
        shown = ", ".join(f"{name} {installed(name)}" for name in ("torch", "transformers", "ipywidgets", "plotly"))
        count = sum(1 for _ in requirements_of(COURSE))
        yield ok("packages", f"all {count} that llmlesson {installed(COURSE)} needs, as {shown}")


def describe(requirement: Requirement, found: str | None) -> str:
    wanted = str(requirement.specifier) or "any version"
    return f"{requirement.name} is {found or 'missing'}, needed is {wanted}"


def bare(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def unmet_requirements() -> Iterator[tuple[str, Requirement, str | None]]:
    """(who needs it, the requirement, the version found or None), through all that the course leads to."""
    queue = [COURSE, *(name for name in FRONT_ENDS if installed(name))]
    seen = set(queue)
    for name in queue:
        for requirement in requirements_of(name):
            found = installed(requirement.name)
            # Development builds such as 2.14.0.dev1 are fine where 2.11 is the least.
            if not found or not requirement.specifier.contains(found, prereleases=True):
                yield name, requirement, found
            elif requirement.name.lower() not in seen:
                seen.add(requirement.name.lower())
                queue.append(requirement.name.lower())


def requirements_of(name: str) -> Iterator[Requirement]:
    """Those that apply on this system, without extras. Raises PackageNotFoundError if it isn't installed."""
    from packaging.requirements import Requirement

    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def installed(name: str) -> str | None:
    """The version that `import` finds; None where the package is missing or its metadata is broken."""
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError):
        return None


def environment() -> str:
    """The folder of this Python's environment."""
    return short(sys.prefix)
