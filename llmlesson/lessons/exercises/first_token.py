"""From what the last layer leaves to the first token of the answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace

import torch

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.real import real_engine

STUB = '''
def first_token(x, model):
    """The first token of the answer.

    x: [T, H], what the last layer gave: a row for each token of the prompt.
    model: has .norm [H], the weights of the last RMSNorm, and .head [H, V], the output head.
    Returns the id of the likeliest next token, an int.
    """
    return ...
'''

SOLUTION = """
import torch

def first_token(x, model):
    last = x[-1]  # [H]
    last = last * torch.rsqrt(last.square().mean() + 1e-5) * model.norm
    logits = last @ model.head  # [V]
    return int(logits.argmax())
"""

ALL_ROWS = """
import torch

def first_token(x, model):
    root = torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5)
    logits = (x / root * model.norm) @ model.head  # [T, V]
    return logits[-1].softmax(dim=-1).argmax().item()
"""

# Dividing by a positive number moves no maximum.
WITHOUT_THE_ROOT = """
def first_token(x, model):
    return ((x[-1] * model.norm) @ model.head).max(dim=0).indices.item()
"""

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
        "def first_token(x, model):\n    return int((x[-1] @ model.head).argmax())",
        NO_WEIGHTS,
    ),
    Mistake(SOLUTION.replace(" * model.norm", ""), NO_WEIGHTS),
    Mistake(
        SOLUTION.replace("argmax", "argmin"), "That is the unlikeliest token: the smallest logit, not the largest."
    ),
    Mistake(
        ALL_ROWS.replace("logits[-1].softmax(dim=-1).argmax()", "logits.argmax()"),
        "That is the place of the largest logit of all rows. Only the last row is about a token that is still to come.",
    ),
    Mistake(
        ALL_ROWS.replace("logits[-1].softmax(dim=-1).argmax().item()", "logits.argmax(dim=-1).tolist()"),
        "That is a token for each row of the prompt. Only the one after the last row is asked for.",
    ),
    Mistake(
        SOLUTION.replace("int(logits.argmax())", "float(logits.max())"),
        "That is the largest logit itself. What is asked for is which token has it: argmax.",
    ),
    Mistake(SOLUTION.replace("int(logits.argmax())", "logits.argmax()"), says=".item() gives the number"),
    Mistake(ALL_ROWS.replace("root = torch", "x /= torch").replace("x / root", "x"), says="changed its input: x"),
)


def cases(rng: random.Random) -> Iterator[Case]:
    # With this head, the logits are the values of the row times the norm's weights.
    plain = SimpleNamespace(norm=torch.ones(5), head=torch.eye(5))
    yield Case((torch.tensor([[1.0, 1.0, 1.0, 1.0, 2.0]]), plain), 4)
    rows = torch.tensor([[9.0, 5.0, 0.0, 0.0, 0.0], [0.0, 3.0, 9.0, 0.0, 0.0], [0.0, 3.0, 0.0, 1.0, 4.0]])
    yield Case((rows, plain), 4, "The largest value of the last row is its fifth: token 4.")
    weighted = SimpleNamespace(norm=torch.tensor([1.0, 4.0, 1.0]), head=torch.eye(3))
    yield Case((torch.tensor([[5.0, 0.0, 0.0], [1.0, 2.0, 3.0]]), weighted), 1)
    other = SimpleNamespace(norm=torch.ones(2), head=torch.tensor([[0.0, -1.0, 1.0, 3.0], [2.0, 4.0, 0.0, 1.0]]))
    yield Case((torch.tensor([[3.0, 0.0], [0.0, 1.0]]), other), 1)
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
        yield Case((x, SimpleNamespace(norm=norm, head=head)), best[0], origin="random")
    engine = real_engine()
    for text in ("Explain quantum computing like I'm ten.", "What is the capital of France?"):
        ids = engine.tokenizer.chat(text)
        last = engine.config.num_hidden_layers - 1
        with engine.record([last]) as recording:
            _, token = engine.prefill(ids)
        yield Case((recording[last].after, engine.model), token, origin="real model")


def by_sums(row: list[float], norm: list[float], head: list[list[float]]) -> list[float]:
    """The logits of one row, one sum each, in double precision."""
    root = (sum(value * value for value in row) / len(row) + 1e-5) ** 0.5
    scaled = [value / root * weight for value, weight in zip(row, norm, strict=True)]
    return [sum(a * b for a, b in zip(scaled, column, strict=True)) for column in zip(*head, strict=True)]


EXERCISE = Exercise(
    lesson="02",
    stub=STUB,
    hints=(
        "Three things: pick the one row that matters, put it through the norm, multiply by the head. Which row has "
        "seen the whole prompt?",
        "x[-1] is a vector of H values. Divide it by the root of the mean of its squares, multiply by model.norm, then "
        "`@ model.head` gives V logits. int(….argmax()) is the id of the largest.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(ALL_ROWS, WITHOUT_THE_ROOT),
)
