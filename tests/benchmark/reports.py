"""A report with round numbers, made up."""

from __future__ import annotations

from engine.tiny import COMMON

from llmlesson.benchmark.bench import DYNAMIC, INT8, NO_CACHE, OURS, STATIC, Report, Row
from llmlesson.engine.config import parse_config
from llmlesson.measure import cost
from llmlesson.measure.roofline import Roofline
from llmlesson.measure.timing import Sample

PEAKS = Roofline(
    device="A CPU",
    dtype="float32",
    threads=2,
    torch="2.13.0",
    read_nbytes=10**9,
    matmul_size=2048,
    bytes_per_second=20e9,
    flops_per_second=100e9,
)
CONFIG = parse_config({**COMMON, "model_type": "llama", "hidden_act": "silu"})


def row(contender: str, first: list[float], step: list[float], prompt_tokens: int = 32, batch: int = 1) -> Row:
    samples = Sample.of(first), Sample.of(step)
    return Row(
        contender=contender,
        prompt_tokens=prompt_tokens,
        batch=batch,
        first=PEAKS.place(cost.prefill(CONFIG, prompt_tokens, batch=batch), samples[0].median),
        step=PEAKS.place(cost.decode(CONFIG, prompt_tokens, batch=batch), samples[1].median),
        first_sample=samples[0],
        step_sample=samples[1],
    )


REPORT = Report(
    model="a model",
    roofline=PEAKS,
    rows=(
        row(OURS, [0.100, 0.101, 0.102], [0.050, 0.051, 0.052]),
        row(DYNAMIC, [0.200, 0.202, 0.204], [0.075, 0.0765, 0.078]),
        row(STATIC, [0.090, 0.103, 0.150], [0.100, 0.102, 0.104]),
        row(NO_CACHE, [0.100, 0.101, 0.102], [0.100, 0.102, 0.104]),
        row(INT8, [0.200, 0.202, 0.204], [0.029, 0.030, 0.031]),
        row(OURS, [0.300, 0.301, 0.302], [0.080, 0.080, 0.080], batch=4),
    ),
    left_out=("transformers, static cache, 32 tokens, batch size 4: no compiler",),
)
