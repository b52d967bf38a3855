"""`llmlesson bench`: how fast this machine runs the engine, and how fast it could run it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from llmlesson.errors import LessonError

RANDOM_TRACE = Path()  # --trace without a file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure time to first token and decode speed, with MFU and MBU, for this engine and for transformers' "
        "generate on the same weights. Prints a Markdown section; takes about two minutes on two cores."
    )
    parser.add_argument("--model", default="smollm2-135m", help="a preset, a folder or a hub id (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.add_argument(
        "--dtype", default="auto", help="auto, or another dtype of llmlesson.load (default: %(default)s)"
    )
    parser.add_argument(
        "--prompt-tokens", type=int, nargs="+", default=[], metavar="N", help="prompt lengths (default: 32 128 512)"
    )
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[1, 4], metavar="N", help="batch sizes at the first prompt length (1 4)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write plots to this HTML file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    trace = parser.add_argument_group(
        "a trace", "play many requests, as users send them, under each policy, instead of the measurements above"
    )
    trace.add_argument(
        "--trace", type=Path, metavar="FILE", nargs="?", const=RANDOM_TRACE,
        help="a CSV file with the columns seconds, prompt_tokens, new_tokens; without a file, 16 random requests",
    )  # fmt: skip
    trace.add_argument("--rate", type=float, default=0.8, help="random requests a second (default: %(default)s)")
    trace.add_argument("--requests", type=int, default=16, help="how many random ones (default: %(default)s)")
    trace.add_argument("--max-running", type=int, default=8, help="most requests in a step (default: %(default)s)")
    trace.add_argument("--token-budget", type=int, default=64, help="most tokens in a chunked step (%(default)s)")
    trace.add_argument("--blocks", type=int, help="blocks of 16 tokens in the cache (default: 1,024 tokens a request)")
    trace.add_argument(
        "--cpu-time", action="store_true", help="measure CPU seconds, for a machine that is also doing other work"
    )


def run(args: argparse.Namespace) -> int:
    if args.trace:
        return run_traces(args)
    if args.plot and not args.plot.absolute().parent.is_dir():
        raise LessonError(f"There is no folder {args.plot.absolute().parent} for the plots. Create it first.")
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


def run_traces(args: argparse.Namespace) -> int:
    import sys

    import llmlesson
    from llmlesson.batching.trace import POLICIES, random_trace, trace_from_file
    from llmlesson.benchmark.traces import run_trace, to_json, to_markdown

    engine = llmlesson.load(args.model, device=args.device, dtype=args.dtype)
    context, vocab = engine.config.max_position_embeddings, engine.config.vocab_size
    if args.trace == RANDOM_TRACE:
        # Lengths as in a chat: means of 109 and 35 tokens.
        arrivals = random_trace(args.requests, args.rate, 109, 35, longest=min(context, 1024), vocab_size=vocab)
    else:
        arrivals = trace_from_file(args.trace, vocab)
    clock = "cpu" if args.cpu_time else "wall"
    summaries = {}
    for policy in POLICIES:
        print(f"Playing {len(arrivals)} requests: {policy}", file=sys.stderr, flush=True)
        played = run_trace(
            engine, arrivals, policy, args.blocks, 16, args.max_running, args.token_budget, clock
        )  # fmt: skip
        summaries[policy] = played.summary()
    print(json.dumps(to_json(summaries)) if args.json else to_markdown(summaries, clock))
    return 0
