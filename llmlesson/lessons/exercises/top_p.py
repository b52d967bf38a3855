"""Top-p: the fewest tokens that together reach a share of the probability."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from llmlesson.engine import Sampling
from llmlesson.lessons.exercise import Case, Exercise, Function, Mistake
from llmlesson.lessons.real import real_engine

STUB = '''
def top_p(probabilities, p):
    """Keep the fewest likeliest tokens whose probabilities together reach p; at least one.

    probabilities: float32 [V], one for each token of the vocabulary, together 1. p: from 0 to 1.
    Returns a new tensor of the same shape: 0 for a token that is ruled out, and what stays makes 1 again.
    """
    return ...
'''

SOLUTION = """
import torch


def top_p(probabilities, p):
    best, order = probabilities.sort(descending=True)
    before = best.cumsum(dim=0) - best  # what the likelier tokens have together
    keep = before < p
    keep[0] = True

    kept = torch.zeros_like(probabilities)
    kept[order[keep]] = best[keep]
    return kept / kept.sum()
"""

WITH_A_LOOP = """
import torch


def top_p(probabilities, p):
    mask, total = torch.zeros(len(probabilities)), 0.0
    for token in probabilities.argsort(descending=True).tolist():
        mask[token] = 1
        total += float(probabilities[token])
        if total >= p:
            break
    return probabilities * mask / (probabilities * mask).sum()
"""

FROM_THE_END = """
import torch


def top_p(probabilities, p):
    worst, order = torch.sort(probabilities)
    drop = worst.cumsum(0) <= 1 - p
    drop[-1] = False
    scores = probabilities.log().index_fill(0, order[drop], -torch.inf)
    return torch.softmax(scores, dim=-1)
"""

ALL_THAT_TIE = """
import torch


def top_p(probabilities, p):
    best = probabilities.sort(descending=True).values
    count = max(1, int((best.cumsum(dim=0) - best < p).sum()))
    kept = torch.where(probabilities >= best[count - 1], probabilities, 0)
    return kept / kept.sum()
"""

CROSSING = (
    "The token with which the sum reaches p is missing. Without it the others have less than p: it stays as well."
)
AT_LEAST_ONE = "At least one token must stay, whatever p is: else there is nothing left to draw from."

COUNTED = """
import torch


def top_p(probabilities, p):
    best, order = probabilities.sort(descending=True)
    count, total = 0, 0.0
    while total < p:
        total += float(best[count])
        count += 1
    kept = torch.zeros_like(probabilities)
    kept[order[:count]] = best[:count]
    return kept / kept.sum()
"""

ROUNDING = (
    "Rounded, all the probabilities together may make a little less than 1. At p = 1 the sum then never reaches p, and "
    "all tokens stay: don't count on the sum getting there."
)

MISTAKES = (
    Mistake(
        COUNTED.replace("count, total = 0, 0.0", "count, total = 1, float(best[0])"),
        ROUNDING,
    ),
    Mistake(
        COUNTED.replace(
            "count, total = 0, 0.0\n    while total < p:\n        total += float(best[count])\n        count += 1",
            "count = int((best.cumsum(dim=0) >= p).nonzero()[0]) + 1",
        ),
        ROUNDING,
    ),
    Mistake(
        COUNTED.replace(
            "count, total = 0, 0.0\n    while total < p:\n        total += float(best[count])\n        count += 1",
            "count = int((best.cumsum(dim=0) >= p).int().argmax()) + 1",
        ),
        ROUNDING,
    ),
    Mistake(
        SOLUTION.replace("probabilities.sort", "probabilities.softmax(dim=0).sort"),
        "You put the probabilities through softmax, as if they were scores. They make 1 already: use them as they are.",
    ),
    Mistake(
        SOLUTION.replace("kept / kept.sum()", "kept / p"),
        "You divided by p. What stayed has p or a little more: divide by what it really has together, its sum.",
    ),
    Mistake(
        "import torch\n\n\ndef top_p(probabilities, p):\n"
        "    kept = torch.where(probabilities >= p * probabilities.max(), probabilities, 0)\n"
        "    return kept / kept.sum()",
        "You compared each token with the likeliest one. That is another setting, min-p. Here the sum of the likeliest "
        "has to reach p.",
    ),
    Mistake(
        SOLUTION.replace(
            "    kept = torch.zeros_like(probabilities)\n    kept[order[keep]] = best[keep]\n",
            "    kept = (best * keep)[order]\n",
        ),
        "You used `order` the wrong way round. It says which token each sorted place came from: kept[order] = …, and "
        "not kept = …[order].",
    ),
    Mistake(
        SOLUTION.replace("kept[order[keep]] = best[keep]", "kept[order[keep]] = 1.0"),
        "All tokens that stayed have the same probability now. They keep their own, in the same proportion.",
    ),
    Mistake(
        SOLUTION.replace("return kept / kept.sum()", "kept[order[0]] += 1 - kept.sum()\n    return kept"),
        "You gave all that was left over to the likeliest token. All that stay get their part: divide by the sum.",
    ),
    Mistake(
        ALL_THAT_TIE,
        "Tokens with the same probability as the last one stayed too. Asked for are the fewest: of equals, only as "
        "many as are needed to reach p. So count tokens, and don't compare with a cut-off.",
    ),
    Mistake(
        SOLUTION.replace("    best, order = probabilities.sort(descending=True)\n", "")
        .replace("best.cumsum(dim=0) - best", "probabilities.cumsum(dim=0) - probabilities")
        .replace("keep[0] = True", "keep[probabilities.argmax()] = True")
        .replace("kept[order[keep]] = best[keep]", "kept[keep] = probabilities[keep]"),
        "You added up in the order of the vocabulary. The likeliest come first: sort before you add up.",
    ),
    Mistake(
        SOLUTION.replace("keep = before < p", "keep = torch.arange(len(best)) < p * len(best)"),
        "You kept a share of the tokens. p is a share of the probability, however many tokens that takes.",
    ),
    Mistake(SOLUTION.replace("return kept / kept.sum()", "return (kept / kept.sum()).double()"), says="are right"),
    Mistake(SOLUTION.replace("return kept / kept.sum()", "return (kept / kept.sum()).tolist()"), says="are right"),
    Mistake(
        SOLUTION.replace("return kept / kept.sum()", "return kept / kept.sum(), keep"),
        says="It is a tuple, where a tensor is expected",
    ),
    Mistake(
        "from llmlesson import Sampling\n\n\ndef top_p(probabilities, p):\n"
        "    return Sampling(temperature=1.0, top_p=p).explain(probabilities.log())['top_p']",
        says="which is the course's own way to do it",
    ),
    Mistake(
        "import torch\n\n\ndef top_p(probabilities, p):\n"
        "    kept = torch.where(probabilities >= p, probabilities, 0)\n    return kept / kept.sum()",
        "You compared each probability with p. What counts is the sum of the likeliest ones.",
    ),
    Mistake(SOLUTION.replace("before < p", "best.cumsum(dim=0) < p").replace("    keep[0] = True\n", ""), CROSSING),
    Mistake(SOLUTION.replace("before < p", "best.cumsum(dim=0) < p"), CROSSING),
    Mistake(SOLUTION.replace("before < p", "best.cumsum(dim=0) <= p"), CROSSING),
    Mistake(
        SOLUTION.replace("before < p", "before <= p"),
        "One token too many: where the likelier ones reach p exactly, the next is no longer needed.",
    ),
    Mistake(SOLUTION.replace("    keep[0] = True\n", ""), AT_LEAST_ONE),
    Mistake(
        SOLUTION.replace("kept / kept.sum()", "kept"),
        "What stays must make 1 again: divide by its sum.",
    ),
    Mistake(
        SOLUTION.replace("kept / kept.sum()", "kept.softmax(dim=0)"),
        "softmax makes probabilities out of scores. These are probabilities already, and even a 0 would get a share of "
        "it: divide by the sum.",
    ),
    Mistake(
        SOLUTION.replace("sort(descending=True)", "sort()").replace("keep[0]", "keep[-1]"),
        "You began with the unlikeliest tokens: sort gives the smallest first unless it is told descending=True.",
    ),
    Mistake(
        SOLUTION.replace("kept[order[keep]] = best[keep]", "kept[keep] = best[keep]"),
        "The result is in sorted order. Each probability must stay at its token's place: `order` says where.",
    ),
    Mistake(
        SOLUTION.replace("kept[order[keep]] = best[keep]", "kept = best[keep]"),
        says="The shape is",
    ),
    Mistake(
        SOLUTION.replace("torch.zeros_like(probabilities)", "probabilities").replace(
            "kept[order[keep]] = best[keep]", "kept[order[~keep]] = 0"
        ),
        says="changed its input: probabilities",
    ),
    Mistake(SOLUTION.replace("    return kept / kept.sum()\n", ""), says="without `return` gives None"),
)

LESS_THAN_1 = [0.5, 0.25, 0.2499995]  # together, in float32 as in float64, by less than a millionth


def cases(rng: random.Random) -> Iterator[Case]:
    yield case([0.4, 0.3, 0.2, 0.1], 0.25, [1, 0, 0, 0], "The likeliest token alone reaches 0.25.")
    yield case([0.5, 0.25, 0.125, 0.125], 0.7, [2 / 3, 1 / 3, 0, 0])
    yield case([0.125, 0.5, 0.125, 0.25], 0.7, [0, 2 / 3, 0, 1 / 3])
    yield case([0.25, 0.75], 0.5, [0, 1], "The likeliest token alone reaches 0.5.")
    yield case([0.5, 0.25, 0.125, 0.125], 0.75, [2 / 3, 1 / 3, 0, 0])
    yield case([0.125, 0.5, 0.125, 0.25], 1.0, [0.125, 0.5, 0.125, 0.25])
    yield case([0.125, 0.5, 0.125, 0.25], 0.0, [0, 1, 0, 0], AT_LEAST_ONE)
    yield case([1.0], 0.9, [1])
    yield case(LESS_THAN_1, 1.0, LESS_THAN_1, ROUNDING)
    yield case([0.25] * 4, 0.5, [0.5, 0.5, 0, 0], "Four equals: any two of them reach 0.5.")
    yield case(
        [0.125, 0.5, 0.125, 0.125, 0.125], 0.7, [1 / 6, 2 / 3, 1 / 6, 0, 0], "Two of the four equals are enough."
    )
    for _ in range(30):
        weights = [rng.random() ** 4 for _ in range(rng.randrange(2, 12))]
        probabilities = [weight / sum(weights) for weight in weights]
        sums = [0, *accumulate(sorted(probabilities, reverse=True))]
        # Between two sums, so that no rounding decides.
        count = rng.randrange(1, len(sums))
        p = sum(sums[count - 1 : count + 1]) / 2
        yield case(probabilities, p, fewest(probabilities, count), origin="random")
    for text, p in (("The story of a dragon is a timeless tale of", 0.9), ("The capital of France is", 0.5)):
        engine = real_engine()
        logits = engine.logits(engine.tokenizer.encode(text))[-1]
        p = away_from_a_sum(logits.softmax(dim=0), p)
        yield Case((logits.softmax(dim=0), p), engine_top_p(logits, p), origin="real model")


def case(probabilities: list[float], p: float, expected: list[float], means: str = "", origin: str = "fixed") -> Case:
    return Case((torch.tensor(probabilities), p), torch.tensor(expected, dtype=torch.float32), means, origin)


def run(function: Function, probabilities: Tensor, p: float) -> Any:
    """The result; of equally likely tokens, those that were kept come first, as any of them may be kept."""
    likely = probabilities.clone()
    result = function(probabilities, p)
    if not isinstance(result, Tensor) or result.shape != likely.shape:
        return result
    ordered = result.clone()
    values, counts = likely.unique(return_counts=True)
    for value in values[counts > 1]:
        ordered[likely == value] = result[likely == value].sort(descending=True).values
    return ordered


def fewest(probabilities: list[float], count: int) -> list[float]:
    """Only the `count` likeliest, made to 1."""
    best = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])[:count]
    total = sum(probabilities[i] for i in best)
    return [q / total if i in best else 0.0 for i, q in enumerate(probabilities)]


def away_from_a_sum(probabilities: Tensor, p: float) -> float:
    """A p that keeps as many tokens, halfway between two sums, so that no rounding decides."""
    sums = [0.0, *probabilities.double().sort(descending=True).values.cumsum(dim=0).tolist()]
    return next((before + after) / 2 for before, after in pairwise(sums) if after >= p)


def engine_top_p(logits: Tensor, p: float) -> Tensor:
    """What the engine itself draws from."""
    return Sampling(temperature=1.0, top_p=p).explain(logits)["top_p"]


EXERCISE = Exercise(
    lesson="03",
    stub=STUB,
    hints=(
        "Sort from the likeliest down, and ask for each token: do those before it reach p already? If not, it stays. "
        "The first one always stays.",
        "best, order = probabilities.sort(descending=True) gives the sorted values and, for each, its token. "
        "best.cumsum(dim=0) - best is what the tokens before it have together.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(WITH_A_LOOP, FROM_THE_END),
    run=run,
)
