"""`llmlesson serve`: an OpenAI-compatible server on this machine."""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Any

LEAST_PORT, MOST_PORT = 0, 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Answer over HTTP, as OpenAI's API does. The server listens on this machine's loopback address only, and "
        "prints its address in one line. Ctrl-C or SIGTERM stop it: it takes no more requests, lets those that run "
        "end for up to 30 seconds, then ends."
    )
    parser.add_argument("--model", default="smollm2-135m", help="a preset, a local folder, or a hub id")
    parser.add_argument("--engine", choices=("batch", "paced"), default="batch", help="paced: timed words, no model")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--blocks", type=int, help="size of the KV cache, in blocks of 16 tokens")
    parser.add_argument("--max-running", type=int, default=8, help="the most requests that share a step (default: 8)")
    parser.add_argument("--queue", type=int, default=256, help="the most requests at once, with those that wait")
    parser.add_argument("--api-key", help="what clients must send as their key")
    parser.add_argument(
        "--allowed-host", action="append", default=[], help="a host name to answer to, besides loopback"
    )
    parser.add_argument("--access-log", metavar="FILE", help="add a line of JSON for each request to this file")
    parser.add_argument("--token-seconds", type=float, default=0.05, help="for --engine paced (default: 0.05)")


def run(args: argparse.Namespace) -> int:
    from llmlesson.errors import whole_number
    from llmlesson.server.server import Server

    port = whole_number(args.port, "--port", LEAST_PORT, MOST_PORT)
    hosts = tuple(args.allowed_host)
    server = Server(_engine(args), port, args.queue, args.api_key, hosts, args.access_log).start()
    stopped = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda number, frame: stopped.set())
    print(f"Listening on {server.url}/v1", flush=True)
    while not stopped.wait(0.2):
        pass
    server.drain()
    server.stop()
    return 0


def _engine(args: argparse.Namespace) -> Any:
    if args.engine == "paced":
        from llmlesson.server.paced import PacedBackend

        return PacedBackend(args.token_seconds)
    import llmlesson
    from llmlesson.batching.batch_engine import BatchEngine

    engine = llmlesson.load(args.model, device=args.device, dtype=args.dtype)
    return BatchEngine(engine, blocks=args.blocks, max_running=args.max_running)
