"""Python and the installed packages, compared with what the package says it needs."""

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
# The course needs these on your own machine, but not in a service such as Colab.
FRONT_ENDS = ("jupyterlab", "ipykernel")


def version() -> Finding:
    """This Python against requires-python."""
    from packaging.specifiers import SpecifierSet

    have = platform.python_version()
    if installed(COURSE) is None:
        return ok("Python", have)  # the line on packages then says what is wrong
    needed = metadata.metadata(COURSE)["Requires-Python"]
    if not SpecifierSet(needed).contains(have, prereleases=True):
        mend = f"install Python {needed}, create a new virtual environment with it, and install the course there"
        return problem("Python", f"{have} is not supported: the course needs {needed}", mend)
    return ok("Python", f"{have} (needed: {needed})")


def packages() -> Iterator[Finding]:
    """The package's requirements, then the requirements of those packages."""
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
        yield ok("packages", f"all {count} that llmlesson {installed(COURSE)} needs, such as {shown}")


def describe(requirement: Requirement, found: str | None) -> str:
    wanted = str(requirement.specifier) or "any version"
    return f"{requirement.name} is {found or 'missing'}, but {wanted} is needed"


def bare(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def unmet_requirements() -> Iterator[tuple[str, Requirement, str | None]]:
    """(who needs it, the requirement, the installed version or None), including indirect requirements."""
    queue = [COURSE, *(name for name in FRONT_ENDS if installed(name))]
    seen = set(queue)
    for name in queue:
        for requirement in requirements_of(name):
            found = installed(requirement.name)
            # Development builds such as 2.14.0.dev1 satisfy >=2.11.
            if not found or not requirement.specifier.contains(found, prereleases=True):
                yield name, requirement, found
            elif requirement.name.lower() not in seen:
                seen.add(requirement.name.lower())
                queue.append(requirement.name.lower())


def requirements_of(name: str) -> Iterator[Requirement]:
    """Requirements that apply on this system, without extras. PackageNotFoundError if `name` isn't installed."""
    from packaging.requirements import Requirement

    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def installed(name: str) -> str | None:
    """The version that `import` finds; None if the package is missing or its metadata is broken."""
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError):
        return None


def environment() -> str:
    """The folder of this Python's environment."""
    return short(sys.prefix)
