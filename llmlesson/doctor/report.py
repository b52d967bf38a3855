"""The findings as text for people, or as records."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from llmlesson.doctor.finding import Finding

COLOURS = {"ok": "32", "warning": "33", "problem": "1;31"}
STATUS, NAME = 9, 14  # columns
MARGIN = " " * (STATUS + NAME)


def to_text(findings: Sequence[Finding], width: int, colour: bool = False) -> str:
    """A line for each finding, wrapped to `width` columns, with its fix below; then a summary."""
    lines = []
    for finding in findings:
        status = finding.status.ljust(STATUS)
        if colour:
            status = f"\033[{COLOURS[finding.status]}m{status}\033[0m"
        text = textwrap.fill(
            finding.what,
            max(40, width),
            initial_indent=MARGIN,
            subsequent_indent=MARGIN,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines.append(f"{status}{finding.name.ljust(NAME)}{text[len(MARGIN) :]}")
        # Not wrapped, so that a command can be copied in one piece.
        for number, line in enumerate(finding.mend.splitlines()):
            lines.append(f"{MARGIN}{'   ' if number else '-> '}{line}")
    return "\n".join([*lines, "", in_words(findings)])


def in_words(findings: Sequence[Finding]) -> str:
    problems, warnings = (sum(f.status == status for f in findings) for status in ("problem", "warning"))
    parts = [f"{n} {word}{'s' * (n > 1)}" for n, word in ((problems, "problem"), (warnings, "warning")) if n]
    if not parts:
        return "All is well."
    return f"{' and '.join(parts)}: the lines with -> say how to fix it."


def to_json(findings: Sequence[Finding]) -> str:
    """An array of objects with the keys status, name, what and mend."""
    return json.dumps([asdict(finding) for finding in findings], indent=2)
