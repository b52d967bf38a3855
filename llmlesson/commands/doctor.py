"""`llmlesson doctor`: why the course doesn't run on this machine, and how to fix it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check Python, packages, model, memory, GPU, JupyterLab and network settings, and say how to fix "
        "each problem. Changes nothing. The exit status is 1 if there is a problem."
    )
    parser.add_argument("--online", action="store_true", help="also ask the two places that the model comes from")
    parser.add_argument("--json", action="store_true", help="print a JSON array instead of the report")


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
    """In a terminal, unless NO_COLOR is set; on Windows only in terminals that are known to show colours."""
    understood = "WT_SESSION" in os.environ if sys.platform == "win32" else os.environ.get("TERM") != "dumb"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and understood
