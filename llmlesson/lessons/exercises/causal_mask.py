"""Which positions each token of a chunk may see."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from llmlesson.lessons.exercise import Case, Exercise, Mistake

STUB = '''
def causal_mask(cached, new):
    """Which keys may each new token see?

    cached: how many positions are in the cache already; 0 where the prompt begins.
    new: how many tokens are read now. Their positions are cached, cached + 1, and so on.
    Returns a bool tensor [new, cached + new]: True where the new token (row) may see the position (column).
    """
    return ...
'''

SOLUTION = """
import torch

def causal_mask(cached, new):
    seen = torch.arange(cached + new)  # positions of the keys
    looking = torch.arange(cached, cached + new)  # positions of the new tokens
    return seen[None, :] <= looking[:, None]
"""

TRIANGLE = """
import torch

def causal_mask(cached, new):
    return torch.ones(new, cached + new, dtype=torch.bool).tril(diagonal=cached)
"""

ROWS_OF_ALL = """
import torch

def causal_mask(cached, new):
    length = cached + new
    return torch.tril(torch.ones(length, length))[cached:] == 1
"""

TWO_PARTS = """
import torch

def causal_mask(cached, new):
    mask = torch.zeros((new, cached + new), dtype=bool)
    for row in range(new):
        mask[row, : cached + row + 1] = True
    return mask
"""

TOP_LEFT = TRIANGLE.replace("diagonal=cached", "diagonal=0")
SEES_ALL = "import torch\n\ndef causal_mask(cached, new):\n    return torch.ones(new, cached + new, dtype=torch.bool)"
HIDDEN_IS_TRUE = TRIANGLE.replace("tril(diagonal=cached)", "triu(diagonal=cached + 1)")

A_FIXED_SIZE = "Your mask is cut out of one of a fixed size. Prompts may be longer: make it as large as it has to be."
SLIDING = "Each token sees only those just before it, as with a sliding window. Here it sees all that came before."

MISTAKES = (
    Mistake(SEES_ALL, "Every token sees every other, also those that come after it: nothing is causal about that."),
    Mistake(
        "import torch\n\ndef causal_mask(cached, new):\n"
        "    return torch.cat((torch.ones(new, cached), torch.eye(new)), dim=1).bool()",
        "Each new token sees the cached ones and itself, but none of the new ones before it. It sees those, too.",
    ),
    Mistake(
        "import torch\n\ndef causal_mask(cached, new):\n"
        "    return torch.cat((torch.zeros(new, cached), torch.ones(new, new).tril()), dim=1).bool()",
        "The columns of the cached positions are there, and nobody sees them. They come before all new tokens: True.",
    ),
    Mistake(
        "import torch\n\ndef causal_mask(cached, new):\n"
        "    return torch.cat((torch.ones(new, new).tril(), torch.ones(new, cached)), dim=1).bool()",
        "You put the cached positions on the right. Columns are in the order of the text: the cached ones come first.",
    ),
    Mistake(
        SEES_ALL.replace(
            "    return", "    if not cached:\n        return torch.ones(new, new, dtype=torch.bool).tril()\n    return"
        ),
        "With a cache you let each new token see everything. That is right for a single one. In a piece of several, a "
        "token must not see those after it.",
    ),
    Mistake(
        TRIANGLE.replace("new, cached + new,", "2048, 2048,").replace(
            "tril(diagonal=cached)", "tril()[cached : cached + new, : cached + new]"
        ),
        A_FIXED_SIZE,
    ),
    Mistake(
        SOLUTION.replace(
            "return seen[None, :] <= looking[:, None]",
            "near = seen[None, :] > looking[:, None] - 4096\n    return near & (seen[None, :] <= looking[:, None])",
        ),
        SLIDING,
    ),
    Mistake(
        HIDDEN_IS_TRUE,
        "It is the other way round: True means that a token may see a position, False that it may not.",
    ),
    Mistake(
        TRIANGLE.replace("tril", "triu"),
        "Rows and columns are swapped: each token sees what comes after it. A row is the token that looks.",
    ),
    Mistake(
        SOLUTION.replace("<=", "<"),
        "A token sees itself too. Without that, the first token of a prompt would see nothing at all.",
    ),
    Mistake(
        TRIANGLE.replace("diagonal=cached", "diagonal=cached + 1"),
        "Each token sees one position too many: the one right after its own.",
    ),
    Mistake(
        TOP_LEFT,
        "The triangle starts at the top left, as if the new tokens were at 0, 1, 2, … They come after the cached "
        "ones, and see all of those: shift it to the right by `cached`.",
    ),
    Mistake(
        TRIANGLE.replace("new, cached + new,", "new, new,").replace("diagonal=cached", "diagonal=0"),
        "The cached positions are missing. New tokens see those too, so there is a column for each of them.",
    ),
    Mistake(
        ROWS_OF_ALL.replace("[cached:]", ""),
        "There is a row for each position, where only the new tokens look. The cached ones have had their turn.",
    ),
    Mistake(TRIANGLE.replace(", dtype=torch.bool", ""), says="The dtype is float32, not bool"),
    Mistake(
        "import torch\n\ndef causal_mask(cached, new):\n"
        "    hidden = torch.full((new, cached + new), float('-inf')).triu(diagonal=cached + 1)\n"
        "    return hidden",
        says="The dtype is float32, not bool",
    ),
    Mistake(
        TWO_PARTS.replace("torch.zeros((new, cached + new), dtype=bool)", "[[False] * (cached + new)] * new").replace(
            "mask[row, : cached + row + 1] = True", "mask[row] = [k <= cached + row for k in range(cached + new)]"
        ),
        says="It is a list, where a tensor is expected. The values are right.",
    ),
    Mistake(
        "from llmlesson.engine import attention\n\ndef causal_mask(cached, new):\n"
        "    return attention.causal_mask(new, cached + new, 'cpu')",
        says="You called attention.causal_mask, which is the course's own",
    ),
    Mistake(TRIANGLE.replace("tril(diagonal=cached)", "tril(diagonal=cached).int()"), says="The values are right."),
    Mistake(
        TRIANGLE.replace("new, cached + new,", "64, 64,").replace(
            "tril(diagonal=cached)", "tril()[cached : cached + new, : cached + new]"
        ),
        A_FIXED_SIZE,
    ),
    Mistake(
        SOLUTION.replace(
            "return seen[None, :] <= looking[:, None]",
            "near = seen[None, :] > looking[:, None] - 64\n    return near & (seen[None, :] <= looking[:, None])",
        ),
        SLIDING,
    ),
    Mistake(
        TRIANGLE.replace(
            "    return", "    if new == 1:\n        return torch.ones(cached + 1, dtype=torch.bool)\n    return"
        ),
        "A single new token needs a row of its own too: the shape is [1, cached + 1].",
    ),
)


def cases(rng: random.Random) -> Iterator[Case]:
    yield Case((0, 3), drawn("x..", "xx.", "xxx"))
    yield Case(
        (2, 3), drawn("xxx..", "xxxx.", "xxxxx"), "The new tokens are at positions 2, 3 and 4, after two others."
    )
    yield Case((4, 1), drawn("xxxxx"), "A single new token, as in decode, sees all cached positions and itself.")
    yield Case((0, 1), drawn("x"), "The first token of a prompt sees itself.")
    yield Case((98, 2), drawn("x" * 99 + ".", "x" * 100), "Two new tokens behind 98 others: they see all of those.")
    yield Case((8190, 2), drawn("x" * 8191 + ".", "x" * 8192), "Two new tokens at the end of a long context.")
    for _ in range(20):
        cached, new = rng.randrange(12), rng.randrange(1, 9)
        rows = ("x" * (cached + 1 + row) + "." * (new - 1 - row) for row in range(new))
        yield Case((cached, new), drawn(*rows), origin="random")


def drawn(*rows: str) -> Tensor:
    """A mask from a picture of it: x for what may be seen."""
    return torch.tensor([[sign == "x" for sign in row] for row in rows])


EXERCISE = Exercise(
    lesson="02b",
    stub=STUB,
    hints=(
        "Write down the position of each row and of each column. When may the token at position p see position k?",
        "torch.arange(cached + new) are the positions of the columns, torch.arange(cached, cached + new) those of the "
        "rows. Turn one into a row, the other into a column (with [None, :] and [:, None]), and compare them.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(TRIANGLE, ROWS_OF_ALL, TWO_PARTS),
)
