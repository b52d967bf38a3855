"""`llmlesson doctor`: why the course does not run on this machine, and what mends it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Look at Python, packages, model, memory, GPU, JupyterLab and network settings, and say what mends "
        "each problem. Changes nothing. Exit status 1 if there is a problem."
    )
    parser.add_argument("--online", action="store_true", help="also ask the two places that the model is fetched from")
    parser.add_argument("--json", action="store_true", help="print one JSON array of records in place of the report")


def run(args: argparse.Namespace) -> int:
    from llmlesson.doctor import examine, report

    findings = examine(online=args.online)
    if args.json:
        print(report.to_json(findings))
    else:
        width = min(100, shutil.get_terminal_size((100, 40)).columns)
        print(report.to_text(findings, width, colour=has_colour()))
    return int(any(finding.status == "problem" for finding in findings))


def has_colour() -> bool:
    """In a terminal, unless NO_COLOR is set; on Windows only in the terminals that are known to show it."""
    understood = "WT_SESSION" in os.environ if sys.platform == "win32" else os.environ.get("TERM") != "dumb"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and understood
