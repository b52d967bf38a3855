"""`llmlesson run PROMPT`: one request, start to finish, in a terminal."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from llmlesson.commands.terminal import visible
from llmlesson.errors import LessonError

if TYPE_CHECKING:
    from llmlesson.engine import Engine, Step

MAX_PROMPT = 10_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", help="the prompt; - reads it from standard input")
    parser.add_argument("--max-new-tokens", type=int, default=256, metavar="N", help="longest answer (default: 256)")
    parser.add_argument("--model", default="smollm2-135m", help="a preset, a folder or a hub id (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.add_argument("--no-chat", action="store_true", help="use the prompt as it is, without the chat template")
    parser.add_argument("--json", action="store_true", help="print only one JSON object, at the end")


def run(args: argparse.Namespace) -> int:
    """Stream the answer to standard output, then the summary to standard error (or all of it as JSON)."""
    import llmlesson

    prompt = from_standard_input() if args.prompt == "-" else args.prompt
    engine = llmlesson.load(args.model, device=args.device)

    started = time.perf_counter()
    ids = engine.prompt_ids(prompt, chat=not args.no_chat)
    tokenize_seconds = time.perf_counter() - started
    steps: list[Step] = []
    try:
        for step in engine.stream(ids, max_new_tokens=args.max_new_tokens):
            steps.append(step)
            if not args.json:
                print(visible(step.text), end="", flush=True)
    except KeyboardInterrupt:
        pass  # the summary says so
    summary = summarize(engine, ids, tokenize_seconds, steps)
    if args.json:
        print(json.dumps({**summary, "text": "".join(step.text for step in steps)}))
    else:
        print(flush=True)
        print(visible(readable(summary)), file=sys.stderr)
    return 130 if summary["finish_reason"] == "interrupted" else 0


def from_standard_input() -> str:
    """Standard input as a prompt. LessonError if it is closed, too long, or not text."""
    if sys.stdin is None:
        raise LessonError("Standard input is closed. Give the prompt itself instead of -.")
    try:
        prompt = sys.stdin.read(MAX_PROMPT + 1)
    except UnicodeDecodeError as error:
        raise LessonError(f"Standard input is not text in {error.encoding} ({error.reason}).") from None
    if len(prompt) > MAX_PROMPT:
        raise LessonError(f"Standard input has more than {MAX_PROMPT:,} characters, more than any model reads.")
    return prompt


def summarize(engine: Engine, ids: list[int], tokenize_seconds: float, steps: list[Step]) -> dict[str, Any]:
    """What a request took, up to where it ended. Times in seconds, sizes in bytes."""
    from llmlesson.engine import Timings

    finished = steps and steps[-1].finish_reason
    summary: dict[str, Any] = {
        "model": engine.name,
        "device": str(engine.device),
        "prompt_tokens": len(ids),
        "new_tokens": len(steps),
        "finish_reason": finished or "interrupted",
    }
    if steps:
        timings = Timings(tokenize_seconds, steps[0].seconds, tuple(step.seconds for step in steps[1:]))
        summary |= {
            "time_to_first_token": timings.time_to_first_token,
            "inter_token_latency": timings.inter_token_latency,
            "tokens_per_second": timings.tokens_per_second,
            "kv_cache_tokens": steps[-1].cache_length,
            "kv_cache_nbytes": steps[-1].cache_nbytes,
        }
    return summary


REASONS = {
    "eos": "the model ended its answer (end-of-sequence token)",
    "length": "reached --max-new-tokens",
    "cache_full": "the model's context is full",
    "interrupted": "interrupted",
}


def readable(summary: dict[str, Any]) -> str:
    rows = [
        ("model", f"{summary['model']} on {summary['device']}"),
        ("prompt", f"{summary['prompt_tokens']} tokens"),
        ("answer", f"{summary['new_tokens']} tokens"),
    ]
    if summary["new_tokens"]:
        rows.append(("time to first token", f"{1000 * summary['time_to_first_token']:.0f} ms"))
    if summary.get("inter_token_latency"):
        rows.append(("median inter-token", f"{1000 * summary['inter_token_latency']:.1f} ms"))
        rows.append(("decode speed", f"{summary['tokens_per_second']:.1f} tokens/s"))
    if summary["new_tokens"]:
        size, count = summary["kv_cache_nbytes"], summary["kv_cache_tokens"]
        rows.append(("KV cache", f"{size:,} bytes ({size / 1e6:.2f} MB) for {count} tokens"))
    rows.append(("stopped because", REASONS[summary["finish_reason"]]))
    return "\n" + "\n".join(f"{name:>20}  {value}" for name, value in rows)
