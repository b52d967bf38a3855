"""`llmlesson bench`: how fast this machine runs the engine, and how fast it could."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from llmlesson.errors import LessonError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure the engine beside transformers, and against this machine's limits",
        description="Time to first token and decode speed, ours beside transformers' generate on the same weights, "
        "with MFU and MBU. Prints a Markdown section; takes about two minutes on two cores.",
    )
    parser.add_argument("--model", default="smollm2-135m", help="a preset, a folder or a hub id (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="auto, or one that llmlesson.load takes (default: %(default)s)")
    parser.add_argument(
        "--prompt-tokens", type=int, nargs="+", default=[], metavar="N", help="prompt lengths (default: 32 128 512)"
    )
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[1, 4], metavar="N", help="batch sizes at the first of them (1 4)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write plots into this HTML file")
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.plot and not args.plot.absolute().parent.is_dir():
        raise LessonError(f"There is no folder {args.plot.absolute().parent} for the plots: make it first.")
    from datetime import date

    from transformers.utils import logging

    import llmlesson
    from llmlesson.benchmark import bench, report
    from llmlesson.views.bench import page

    logging.disable_progress_bar()
    engine = llmlesson.load(args.model, device=args.device, dtype=args.dtype)
    result = bench.run(engine, args.prompt_tokens, args.batch)
    if args.plot:
        args.plot.write_text(page(result), encoding="utf-8")
    if args.json:
        print(json.dumps(report.to_json(result, date.today())))
    else:
        print(report.to_markdown(result, date.today()))
    return 0
