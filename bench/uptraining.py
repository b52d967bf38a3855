"""Merges the KV heads of the default model into one, trains it on for a little while, and records how it heals.

    OMP_NUM_THREADS=1 nice -n 19 python bench/uptraining.py --out llmlesson/lessons/data/uptraining.json

Lesson 06 shows the record. The merge is the mean of the three KV heads (Ainslie and others, 2023, arXiv 2305.13245),
the training is next-token prediction with AdamW. Only the layers are trained: embedding and output head stay as they
are. The text is the reference of the Python language as every Python carries it (`pydoc_data`, PSF licence); paragraphs
that are measured on are never trained on. A shorter run with the heads as they were shows which part of the gain is
only that the model gets used to this kind of text. Takes about twenty minutes of one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor

import llmlesson
from llmlesson.engine import Engine
from llmlesson.engine.attention import attend

SEED, ROWS, LENGTH = 0, 2, 128  # a step reads ROWS pieces of LENGTH tokens
PEAK, WARM_UP = 5e-4, 10
STEPS = {1: 180, 3: 60}  # for each number of KV heads
MEASURED_AT = (1, 3, 10, 20, 40, 60, 80, 100, 120, 150)
PROMPT = "The capital of France is"
OTHER_TEXT = (  # the paragraph of lesson 06, which is not about Python
    "Water boils at 100 degrees Celsius at sea level. On a high mountain the air is thinner and the pressure is lower, "
    "so water boils at a lower temperature. This is why it takes longer to cook pasta or potatoes in the mountains. A "
    "pressure cooker does the opposite: it keeps the steam inside, the pressure rises, and the food is done sooner."
)


class NoCache:
    """What the forward pass asks of a cache, for whole texts: nothing is kept, and gradients flow through."""

    def positions(self, tokens: int) -> Tensor:
        return torch.arange(tokens)[None]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v)


def paragraphs() -> list[str]:
    """The prose of the reference, each paragraph once, in an order that only the seed decides."""
    found: dict[str, None] = {}
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            text = " ".join(paragraph.split())
            if len(text) >= 100 and text[0].isupper():
                found[text] = None
    texts = list(found)
    random.Random(SEED).shuffle(texts)
    return texts


def pieces(engine: Engine, texts: list[str]) -> Tensor:
    """These paragraphs one after the other, cut into rows: int64 [N, LENGTH]."""
    ids = engine.tokenizer.raw("\n\n".join(texts))
    return torch.tensor(ids[: len(ids) // LENGTH * LENGTH]).view(-1, LENGTH)


def merged(engine: Engine) -> Engine:
    """The same model with one KV head in each layer, the mean of those it had. All trained tensors are copies."""
    c = engine.config
    d, kv = c.head_dim, c.num_key_value_heads
    layers = []
    for layer in engine.model.layers:
        q, k, v = layer.qkv.split([c.num_attention_heads * d, kv * d, kv * d], dim=1)
        k, v = (columns.unflatten(1, (kv, d)).mean(dim=1) for columns in (k, v))  # [H, D]
        layers.append(replace(layer, qkv=torch.cat((q, k, v), dim=1)))
    model = replace(engine.model, layers=layers, config=replace(c, num_key_value_heads=1))
    return Engine("1 KV head", model, engine.tokenizer, engine.eos_token_ids)


def trainable(engine: Engine) -> list[Tensor]:
    """Copies of all tensors of the layers take their place, ready to be trained."""
    weights = []
    for layer in engine.model.layers:
        for name in ("attention_norm", "qkv", "out", "mlp_norm", "gate_up", "down"):
            weight = getattr(layer, name).detach().clone().requires_grad_()
            setattr(layer, name, weight)
            weights.append(weight)
    return weights


def loss(engine: Engine, ids: Tensor) -> Tensor:
    """Mean of −log p of each next token, ids: [B, T]."""
    logits = engine.model.logits(engine.model.forward(ids[:, :-1], NoCache()))
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def batches(train: Tensor) -> Iterator[Tensor]:
    """ROWS rows at a time; when all were read, once more in another order."""
    order = torch.Generator().manual_seed(SEED)
    while True:
        yield from train[torch.randperm(len(train), generator=order)].split(ROWS)[: len(train) // ROWS]


def measured(engine: Engine, held_out: Tensor, step: int) -> dict[str, object]:
    with torch.no_grad():
        held = float(loss(engine, held_out).exp())
        other = float(loss(engine, torch.tensor([engine.tokenizer.raw(OTHER_TEXT)])).exp())
        text = engine.generate(engine.tokenizer.raw(PROMPT), max_new_tokens=12).text
    print(f"{step:4} {held:12.2f} {other:12.2f} {text!r}", flush=True)
    return {"step": step, "perplexity": float(f"{held:.4g}"), "other": float(f"{other:.4g}"), "text": text}


def uptrain(engine: Engine, train: Tensor, held_out: Tensor, steps: int) -> list[dict[str, object]]:
    """One run from these weights; returns what was measured on its way."""
    weights = trainable(engine)
    optimizer = torch.optim.AdamW(weights, lr=PEAK, betas=(0.9, 0.95), weight_decay=0.0)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda n: (
            (n + 1) / WARM_UP if n < WARM_UP else 0.55 + 0.45 * math.cos(math.pi * (n - WARM_UP) / (steps - WARM_UP))
        ),
    )
    record = [measured(engine, held_out, 0)]
    for step, rows in zip(range(1, steps + 1), batches(train), strict=False):
        loss(engine, rows).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        if step in MEASURED_AT or step == steps:
            record.append(measured(engine, held_out, step))
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(SEED)
    engine = llmlesson.load(device="cpu", dtype="float32")
    texts = paragraphs()
    cut = len(texts) // 10
    held_out, train = pieces(engine, texts[:cut])[:8], pieces(engine, texts[cut:])
    print(f"{len(texts)} paragraphs, {train.numel():,} tokens to train on, {held_out.numel():,} to measure on")
    start = time.process_time()
    result = {
        "model": engine.name,
        "merge": "mean of the 3 KV heads, in all layers",
        "text": f"prose of pydoc_data.topics, Python {platform.python_version()} (PSF licence)",
        "text_sha256": hashlib.sha256("\n\n".join(texts).encode()).hexdigest(),
        "tokens_a_step": ROWS * (LENGTH - 1),
        "train_tokens": train.numel(),
        "held_out_tokens": held_out.numel(),
        "optimizer": f"AdamW, at most {PEAK}, {WARM_UP} steps of warm-up, then a cosine to a tenth",
        "seed": SEED,
        "torch": torch.__version__.split("+")[0],
        "prompt": PROMPT,
        "runs": {},
    }
    for kv_heads, made in ((1, merged(engine)), (3, engine)):
        print(f"{kv_heads} KV heads")
        result["runs"][str(kv_heads)] = uptrain(made, train, held_out, STEPS[kv_heads])
        result["cpu_seconds"] = round(time.process_time() - start)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
