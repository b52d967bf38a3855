"""Many requests at once, ours beside transformers' `generate_batch`, on the same weights and in turns.

    OMP_NUM_THREADS=1 python bench/peers/transformers_batch.py

All requests are there from the beginning, since `generate_batch` takes them so. Needs nothing but the course's own
requirements. Times are CPU seconds of this process. Prints one line of Markdown table for each run.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Callable

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

import llmlesson
from llmlesson import BatchEngine
from llmlesson.benchmark.contenders import transformers_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--default-cache",
        action="store_true",
        help="let generate_batch size its cache: most of the memory, zeroed first",
    )
    args = parser.parse_args()
    engine = llmlesson.load(device="cpu")
    endless = copy.copy(engine)
    endless.eos_token_ids = frozenset()
    reference = transformers_model(engine.name, engine)
    config = GenerationConfig(do_sample=False, max_new_tokens=args.new_tokens, eos_token_id=-1, pad_token_id=0)
    # As many slots as ours has, where its own choice isn't asked for.
    batching = None if args.default_cache else ContinuousBatchingConfig(page_size=256, num_blocks=4 * args.requests)
    chance = random.Random(0)
    prompts = [chance.choices(range(engine.config.vocab_size), k=50 + 24 * n) for n in range(args.requests)]

    def ours() -> list[list[int]]:
        batch = BatchEngine(endless, max_running=args.requests)
        return [answer.token_ids for answer in batch.generate(prompts, args.new_tokens)]

    def theirs() -> list[list[int]]:
        found = reference.generate_batch(prompts, generation_config=config, continuous_batching_config=batching)
        by_prompt = {tuple(output.prompt_ids): output.generated_tokens for output in found.values()}
        return [by_prompt[tuple(prompt)] for prompt in prompts]

    contenders: dict[str, Callable[[], list[list[int]]]] = {"llmlesson": ours, "generate_batch": theirs}
    tokens = sum(map(len, prompts)), args.requests * args.new_tokens
    print(f"{args.requests} requests, {tokens[0]} + {tokens[1]} tokens, {torch.get_num_threads()} thread(s)")
    for repeat in range(args.repeats):
        seconds, answers = {}, {}
        for name, run in contenders.items():
            before = time.process_time()
            answers[name] = run()
            seconds[name] = time.process_time() - before
        same = sum(a == b for a, b in zip(*answers.values(), strict=True))
        print(
            f"| {repeat} | {seconds['llmlesson']:.1f} | {seconds['generate_batch']:.1f} "
            f"| {seconds['generate_batch'] / seconds['llmlesson']:.1f} | {same} of {len(prompts)} the same |",
            flush=True,
        )


if __name__ == "__main__":
    main()
