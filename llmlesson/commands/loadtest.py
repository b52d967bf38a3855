"""`llmlesson loadtest`: many requests to a server, and what their clients saw."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Send many streamed requests to a server with OpenAI's API. Prints time to first token (TTFT), inter-token "
        "latency (ITL), time per output token (TPOT), throughput, and goodput within the limits that you set."
    )
    parser.add_argument("url", help="the server's address, such as http://127.0.0.1:8000")
    loop = parser.add_mutually_exclusive_group()
    loop.add_argument(
        "--clients", type=int, metavar="N", help="closed loop: N clients, each waits for its answer (default: 4)"
    )
    loop.add_argument(
        "--rate", type=float, metavar="R", help="open loop: R requests a second, whatever the server does"
    )
    parser.add_argument("--requests", type=int, default=32, metavar="N", help="how many in all (default: %(default)s)")
    parser.add_argument(
        "--max-tokens", type=int, nargs="+", default=[64], metavar="N", help="of an answer; of several, in turn (64)"
    )
    parser.add_argument("--prompt-words", type=int, default=32, metavar="N", help="of a prompt (default: %(default)s)")
    parser.add_argument(
        "--ignore-eos", action="store_true", help="answers of exactly --max-tokens, where the server can do that"
    )
    parser.add_argument("--model", help="default: the first that the server names")
    parser.add_argument("--api-key")
    parser.add_argument("--max-ttft", type=float, default=math.inf, metavar="SECONDS", help="a limit for goodput")
    parser.add_argument("--max-tpot", type=float, default=math.inf, metavar="SECONDS", help="a limit for goodput")
    parser.add_argument("--seed", type=int, default=0, help="for the prompts and the arrivals (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with each request's times")
    parser.add_argument("--raster", type=Path, metavar="FILE", help="draw each token's arrival into this HTML file")


def run(args: argparse.Namespace) -> int:
    from llmlesson.errors import LessonError
    from llmlesson.server import loadtest
    from llmlesson.views.arrivals import page

    if args.raster and not args.raster.absolute().parent.is_dir():
        raise LessonError(f"There is no folder {args.raster.absolute().parent} for the picture. Create it first.")
    load = loadtest.run(
        args.url,
        requests=args.requests,
        clients=4 if args.clients is None and args.rate is None else args.clients,
        rate=args.rate,
        max_tokens=args.max_tokens,
        prompt_words=args.prompt_words,
        ignore_eos=args.ignore_eos,
        model=args.model,
        api_key=args.api_key,
        max_ttft=args.max_ttft,
        max_tpot=args.max_tpot,
        seed=args.seed,
    )
    if args.raster:
        args.raster.write_text(page(load.exchanges), encoding="utf-8")
    print(json.dumps(load.to_json()) if args.json else load)
    return 1 if load.failed else 0
