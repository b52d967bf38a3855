"""From what the last layer leaves to the first token of the answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace

import torch
from torch import Tensor

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.real import real_engine

STUB = '''
def first_token(x, model):
    """The first token of the answer, and the scores it won against: (token, logits).

    x: [T, H], what the last layer gave: a row for each token of the prompt.
    model: has .norm [H], the weights of the last RMSNorm (1e-5 under its root), and .head [H, V], the output head.
    logits: [V], a score for each token of the vocabulary. token: the id of the one with the highest, an int.
    """
    return ...
'''

SOLUTION = """
import torch

def first_token(x, model):
    last = x[-1]  # [H]
    last = last * torch.rsqrt(last.square().mean() + 1e-5) * model.norm
    logits = last @ model.head  # [V]
    return int(logits.argmax()), logits
"""

ALL_ROWS = """
import torch

def first_token(x, model):
    root = torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5)
    logits = (x / root * model.norm) @ model.head  # [T, V]
    return [logits[-1].softmax(dim=-1).argmax().item(), logits[-1]]
"""

WITH_TORCH = """
import torch.nn.functional as F

def first_token(x, model):
    logits = F.rms_norm(x[-1:], model.norm.shape, model.norm, 1e-5) @ model.head  # [1, V]
    return logits.max(dim=1).indices.item(), logits.squeeze(0)
"""

ROOT = " * torch.rsqrt(last.square().mean() + 1e-5)"

NO_WEIGHTS = "The norm's weights are missing: model.norm makes some of the H values count more than others."

MISTAKES = (
    Mistake(SOLUTION.replace("x[-1]", "x[0]"), "You took the first row. It has seen one token; the last has seen all."),
    Mistake(
        SOLUTION.replace("x[-1]", "x.mean(dim=0)"),
        "You averaged or added up all rows, as one does to compare texts. Only the last row tells what comes next.",
    ),
    Mistake(
        SOLUTION.replace("x[-1]", "x[-2]"),
        "You took the last row but one, which says what follows it: the last token of the prompt.",
    ),
    Mistake(
        "def first_token(x, model):\n    logits = x[-1] @ model.head\n    return int(logits.argmax()), logits",
        "The norm is missing. It does not only scale: its weights, model.norm, make some of the H values count more.",
    ),
    Mistake(SOLUTION.replace(" * model.norm", ""), NO_WEIGHTS),
    Mistake(
        SOLUTION.replace(ROOT, ""),
        "The row is not divided by the root of the mean of its squares. The highest score is still the highest, but "
        "the scores are too far apart: a draw by them, with a temperature, would come out differently.",
    ),
    Mistake(
        SOLUTION.replace(" + 1e-5", ""),
        "Under the root, 1e-5 is added to the mean of the squares. It shows where the row is small.",
    ),
    Mistake(
        SOLUTION.replace(".mean()", ".sum()"),
        "You divided by the root of the sum of the squares. RMSNorm takes the root of their mean.",
    ),
    Mistake(
        SOLUTION.replace("last = x[-1]", "last = x[-1] - x[-1].mean()"),
        "You took the mean off first, as LayerNorm does. RMSNorm only divides.",
    ),
    Mistake(
        SOLUTION.replace("rsqrt", "sqrt"),
        "You multiplied by the root of the mean of the squares. Divide by it: torch.rsqrt is 1 / torch.sqrt.",
    ),
    Mistake(
        SOLUTION.replace("last @ model.head", "(last @ model.head).softmax(dim=0)"),
        "These are probabilities. Logits are the scores before the softmax.",
    ),
    Mistake(
        SOLUTION.replace("argmax", "argmin"), "That is the unlikeliest token: the smallest logit, not the largest."
    ),
    Mistake(
        ALL_ROWS.replace("logits[-1].softmax(dim=-1).argmax()", "logits.argmax()"),
        "That is the place of the largest logit of all rows. Only the last row is about a token that is still to come.",
    ),
    Mistake(
        ALL_ROWS.replace(", logits[-1]]", ", logits]"),
        "These are the logits after each token of the prompt, [T, V]. Only the last row says what comes next.",
    ),
    Mistake(
        SOLUTION.replace("int(logits.argmax()), logits", "int(logits.argmax())"),
        says="It is an int, where a tuple is expected",
    ),
    Mistake(SOLUTION.replace("int(logits.argmax())", "logits.argmax()"), says=".item() gives the number"),
    Mistake(SOLUTION.replace("int(logits.argmax()), logits", "logits.max(dim=0)"), says="ives the number"),
    Mistake(SOLUTION.replace("logits\n", "logits.tolist()\n"), says="It is a list, where a tensor is expected"),
    Mistake(SOLUTION.replace("x[-1]", "x[-1].double()").replace("model.head", "model.head.double()"), says="float64"),
    Mistake(ALL_ROWS.replace("root = torch", "x /= torch").replace("x / root", "x"), says="changed its input: x"),
    Mistake(
        SOLUTION.replace("    logits =", "    model.head *= model.norm[:, None]\n    logits =").replace(
            "* model.norm\n", "\n"
        ),
        says="changed its input: model",
    ),
)


def cases(rng: random.Random) -> Iterator[Case]:
    # With this head, the logits are the values of the row times the norm's weights.
    # Squares with a mean of 1, so that the norm leaves the row as it is, but for its weights.
    plain = SimpleNamespace(norm=torch.ones(4), head=torch.eye(4))
    row = torch.tensor([[-1.0, 1.0, -1.0, 1.0]]) * torch.tensor([[0.6, 0.8, 1.4, 0.2]]) / 0.75**0.5
    yield Case((row, plain), answer(row, plain), "The largest value of the only row is its second: token 1.")
    weighted = SimpleNamespace(norm=torch.tensor([1.0, 4.0, 1.0]), head=torch.eye(3))
    rows = torch.tensor([[5.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    yield Case((rows, weighted), answer(rows, weighted), "The second value has four times the weight in the norm.")
    rows = torch.tensor([[9.0, 5.0, 0.0, 0.0], [0.0, 3.0, 9.0, 0.0], [1.0, 3.0, 1.0, 5.0]])
    yield Case((rows, plain), answer(rows, plain), "The squares of the last row have the mean 9: divide by 3.")
    other = SimpleNamespace(norm=torch.ones(2), head=torch.tensor([[0.0, -1.0, 1.0, 3.0], [2.0, 4.0, 0.0, 1.0]]))
    rows = torch.tensor([[3.0, 0.0], [0.0, 0.002]])
    yield Case((rows, other), answer(rows, other), "A small row: 1e-5 under the root counts.")
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    made = 0
    while made < 15:
        tokens, hidden, vocabulary = rng.randrange(2, 6), 8, 20
        x = torch.randn(tokens, hidden, generator=generator)
        norm = torch.rand(hidden, generator=generator) * 2 + 0.1
        head = torch.randn(hidden, vocabulary, generator=generator)
        scores = by_sums(x[-1].tolist(), norm.tolist(), head.tolist())
        best = sorted(range(vocabulary), key=lambda token, scores=scores: -scores[token])  # type: ignore[misc]
        if scores[best[0]] - scores[best[1]] < 0.01:  # too close to tell apart by any way of adding up
            continue
        made += 1
        yield Case((x, SimpleNamespace(norm=norm, head=head)), (best[0], torch.tensor(scores)), origin="random")
    engine = real_engine()
    for text in ("Explain quantum computing like I'm ten.", "What is the capital of France?"):
        ids = engine.tokenizer.chat(text)
        last = engine.config.num_hidden_layers - 1
        with engine.record([last]) as recording:
            logits = engine.logits(ids)[-1]
        yield Case((recording[last].after, engine.model), (int(logits.argmax()), logits), origin="real model")


def answer(x: Tensor, model: SimpleNamespace) -> tuple[int, Tensor]:
    scores = by_sums(x[-1].tolist(), model.norm.tolist(), model.head.tolist())
    return scores.index(max(scores)), torch.tensor(scores)


def by_sums(row: list[float], norm: list[float], head: list[list[float]]) -> list[float]:
    """The logits of one row, one sum each, in double precision."""
    root = (sum(value * value for value in row) / len(row) + 1e-5) ** 0.5
    scaled = [value / root * weight for value, weight in zip(row, norm, strict=True)]
    return [sum(a * b for a, b in zip(scaled, column, strict=True)) for column in zip(*head, strict=True)]


EXERCISE = Exercise(
    lesson="02b",
    stub=STUB,
    hints=(
        "Three things: pick the one row that matters, put it through the norm, multiply by the head. Which row has "
        "seen the whole prompt?",
        "x[-1] is a vector of H values. Divide it by the root of the mean of its squares, multiply by model.norm, then "
        "`@ model.head` gives V logits. int(logits.argmax()) is the id of the largest.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(ALL_ROWS, WITH_TORCH),
)
