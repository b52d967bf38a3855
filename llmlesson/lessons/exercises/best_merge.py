"""One step of byte-pair encoding."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.real import real_merges

STUB = '''
def apply_best_merge(tokens, ranks):
    """Merge the adjacent pair with the lowest rank, wherever it occurs, reading from left to right.

    tokens: a list of str, such as ["l", "e", "s", "s"].
    ranks: a dict from a pair of tokens to its rank, such as {("e", "s"): 14}.
    Returns a new list. If no adjacent pair has a rank, it holds the same tokens.
    """
    return ...
'''

SOLUTION = """
def apply_best_merge(tokens, ranks):
    pairs = [pair for pair in zip(tokens, tokens[1:]) if pair in ranks]
    if not pairs:
        return list(tokens)
    best = min(pairs, key=ranks.get)

    merged, i = [], 0
    while i < len(tokens):
        if tuple(tokens[i : i + 2]) == best:
            merged.append(tokens[i] + tokens[i + 1])
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged
"""

RECURSIVE = """
def apply_best_merge(tokens, ranks):
    known = {(ranks[pair], pair) for pair in zip(tokens, tokens[1:]) if pair in ranks}
    if not known:
        return tokens
    left, right = min(known)[1]

    def joined(rest):
        if len(rest) < 2:
            return rest
        if rest[0] == left and rest[1] == right:
            return (left + right,) + joined(rest[2:])
        return rest[:1] + joined(rest[1:])

    return joined(tuple(tokens))
"""

IN_A_COPY = """
def apply_best_merge(tokens, ranks):
    tokens = tokens[:]
    best = None
    for i in range(len(tokens) - 1):
        pair = tokens[i], tokens[i + 1]
        if pair in ranks and (best is None or ranks[pair] < ranks[best]):
            best = pair
    i = 0
    while best and i < len(tokens) - 1:
        if (tokens[i], tokens[i + 1]) == best:
            tokens[i : i + 2] = [best[0] + best[1]]
        i += 1
    return tokens
"""

UNTIL_NOTHING_IS_LEFT = SOLUTION.replace("return merged", "return apply_best_merge(merged, ranks)")
ONLY_THE_FIRST = SOLUTION.replace(
    "merged.append(tokens[i] + tokens[i + 1])", "return tokens[:i] + [''.join(best)] + tokens[i + 2:]"
)

NO_PAIR = "There may be no pair to merge: one token, or none that stand in the table together. Return them as they are."
NOT_YET = "Only tokens that are neighbours now can be merged; the result of a merge has its turn in the next step."

FROM_THE_RIGHT = """
def apply_best_merge(tokens, ranks):
    pairs = [pair for pair in zip(tokens, tokens[1:]) if pair in ranks]
    if not pairs:
        return list(tokens)
    best = min(pairs, key=ranks.get)
    merged, i = [], len(tokens)
    while i > 0:
        width = 2 if tuple(tokens[max(i - 2, 0) : i]) == best else 1
        merged.insert(0, "".join(tokens[i - width : i]))
        i -= width
    return merged
"""

MISTAKES = (
    Mistake(
        SOLUTION.replace("min(pairs, key=ranks.get)", "pairs[0]"),
        "You merged the leftmost pair that has a rank. The lowest rank decides, wherever that pair is.",
    ),
    Mistake(
        SOLUTION.replace("min(pairs", "max(pairs"),
        "You merged the pair with the highest rank. Rank 0 was learned first and goes first: the lowest wins.",
    ),
    Mistake(
        SOLUTION.replace("min(pairs, key=ranks.get)", "max(pairs, key=pairs.count)"),
        "You merged the most frequent pair. That is how a table is made in training; to use it, only ranks count.",
    ),
    Mistake(ONLY_THE_FIRST, "You merged one occurrence of the pair. It is merged everywhere in the same step."),
    Mistake(
        SOLUTION.replace("i += 2", "i += 1"),
        "After a merge, go on behind both of its tokens: you used the second one again.",
    ),
    Mistake(
        SOLUTION.replace("tuple(tokens[i : i + 2]) == best", "''.join(tokens[i : i + 2]) == ''.join(best)"),
        "You compared the joined text. (a, bc) and (ab, c) are both abc, yet only the pair itself has the rank.",
    ),
    Mistake(
        UNTIL_NOTHING_IS_LEFT,
        "You went on until nothing could be merged. This function does one step; the loop around it comes after.",
    ),
    Mistake(
        SOLUTION.replace("if pair in ranks]", "if ranks.get(pair)]"),
        "A rank may be 0, and 0 counts as false: ask whether the pair is in the table, not whether its rank is true.",
    ),
    Mistake(
        SOLUTION.replace("    if not pairs:\n        return list(tokens)\n", ""),
        NO_PAIR,
    ),
    Mistake(
        SOLUTION.replace("while i < len(tokens):", "while i < len(tokens) - 1:"),
        "The last token is lost where it is not part of a pair.",
    ),
    Mistake(IN_A_COPY.replace("    tokens = tokens[:]\n", ""), says="changed its input: tokens"),
    Mistake(SOLUTION.replace("return merged", "return iter(merged)"), says="put list(...) around it"),
    Mistake(SOLUTION.replace("    return merged\n", ""), says="without `return` gives None"),
    Mistake(
        "import re\n\ndef apply_best_merge(tokens, ranks):\n"
        "    pairs = [pair for pair in zip(tokens, tokens[1:]) if pair in ranks]\n"
        "    if not pairs:\n        return list(tokens)\n"
        "    left, right = min(pairs, key=ranks.get)\n"
        "    text = '|' + '|'.join(tokens) + '|'\n"
        "    pattern = rf'(?<=\\|){re.escape(left)}\\|{re.escape(right)}(?=\\|)'\n"
        "    return re.sub(pattern, lambda match: left + right, text)[1:-1].split('|')",
        "You joined the tokens with a sign between them. A token may hold that sign itself: keep them in a list.",
    ),
    Mistake(
        SOLUTION.replace(
            "tuple(tokens[i : i + 2]) == best",
            "i + 1 < len(tokens) and tokens[i] is best[0] and tokens[i + 1] is best[1]",
        ),
        "You compared with `is`, which asks for the very same object in memory. Texts are compared with ==.",
    ),
    Mistake(
        SOLUTION.replace("min(pairs, key=ranks.get)", "next(pair for pair in ranks if pair in pairs)"),
        "You took the first pair of the table. A dict need not be in the order of its ranks: the lowest rank decides.",
    ),
    Mistake(
        SOLUTION.replace("min(pairs, key=ranks.get)", "min(pairs)"),
        "You took the first pair of the alphabet. The lowest rank decides: min(pairs, key=ranks.get).",
    ),
    Mistake(
        SOLUTION.replace(" if pair in ranks]", "]").replace("key=ranks.get", "key=lambda pair: ranks.get(pair, 10**6)"),
        "A pair that is not in the table is never merged, even where there is no other.",
    ),
    Mistake(SOLUTION.replace("return merged", "return ''.join(merged)"), says="It is a str, where a list is expected"),
    Mistake(
        SOLUTION.replace(
            "    if not pairs:\n        return list(tokens)\n", "    if not pairs:\n        return best\n"
        ).replace("    if not", "    best = None\n    if not"),
        says="without `return` gives None",
    ),
    Mistake(
        SOLUTION.replace("min(pairs, key=ranks.get)", "min(ranks, key=ranks.get)"),
        "You took the lowest rank of the whole table. That pair need not occur here: look among the neighbours.",
    ),
    Mistake(
        FROM_THE_RIGHT,
        "You read from right to left. In a, a, a the first two are merged, not the last two: begin on the left.",
    ),
    Mistake(
        "def apply_best_merge(tokens, ranks):\n"
        "    pairs = [pair for pair in zip(tokens, tokens[1:]) if pair in ranks]\n"
        "    if not pairs:\n        return list(tokens)\n"
        "    left, right = min(pairs, key=ranks.get)\n"
        "    return ' '.join(tokens).replace(f'{left} {right}', left + right).split(' ')",
        "You replaced text, and it matched the end of one token or the beginning of another. Compare whole tokens.",
    ),
    Mistake(
        IN_A_COPY.replace(
            "while best and i < len(tokens) - 1:", "for i in range(len(tokens) - 1 if best else 0):"
        ).replace("        i += 1\n", ""),
        "The list gets shorter as you merge, and a loop over range(len(tokens)) doesn't notice. Walk with while.",
    ),
    Mistake(
        SOLUTION.replace("zip(tokens, tokens[1:])", "itertools.combinations(tokens, 2)").replace(
            "\ndef", "import itertools\n\ndef", 1
        ),
        "You looked at every two tokens of the list. Only neighbours make a pair: zip(tokens, tokens[1:]).",
    ),
    Mistake(
        SOLUTION.replace("if tuple(tokens[i : i + 2]) == best", "if set(tokens[i : i + 2]) == set(best)").replace(
            "tokens[i] + tokens[i + 1]", "''.join(tokens[i : i + 2])"
        ),
        "You ignored the order. (a, b) has a rank; (b, a) is another pair. And a set of (a, a) holds a single a.",
    ),
    Mistake(
        SOLUTION.replace("return merged", "return list(dict.fromkeys(merged))"),
        "A token that occurs twice was dropped. The new list is the same text, so every token stays.",
    ),
)


def cases(rng: random.Random) -> Iterator[Case]:
    ranks = {("a", "b"): 5, ("c", "d"): 8, ("e", "f"): 9, ("g", "h"): 13}
    yield Case((["a", "b"], ranks), ["ab"])
    yield Case((list("cdefefghab"), ranks), [*"cdefefgh", "ab"])
    yield Case((list("xefyef"), ranks), ["x", "ef", "y", "ef"])
    yield Case((list("xcdy"), ranks), ["x", "cd", "y"])
    yield Case((list("xcaxd"), {("c", "d"): 1, ("a", "x"): 2}), ["x", "c", "ax", "d"])
    yield Case((["xa", "b", "a", "b"], {("a", "b"): 4}), ["xa", "b", "ab"])
    yield Case((["l", "a", "b"], {("l", "ab"): 20, ("l", "a"): 30}), ["la", "b"], NOT_YET)
    yield Case((["a", "a", "a"], {("a", "a"): 7}), ["aa", "a"])
    yield Case((["ab", "c", "a", "bc"], {("a", "bc"): 4}), ["ab", "c", "abc"])
    yield Case((list("xyz"), {("y", "z"): 3, ("x", "y"): 7}), ["x", "yz"])
    yield Case((list("xyz"), {("y", "z"): 0, ("x", "y"): 1}), ["x", "yz"])
    yield Case((["|", "a", "b", "|"], {("a", "b"): 4}), ["|", "ab", "|"])
    # The same texts, as objects of their own.
    yield Case((["".join("ab"), "c", "".join("ab"), "c"], {("ab", "c"): 4}), ["abc", "abc"])
    yield Case((["x", "y"], ranks), ["x", "y"], NO_PAIR)
    yield Case((["a"], ranks), ["a"], NO_PAIR)
    yield Case(([], ranks), [], NO_PAIR)
    parts = ["a", "b", "ab", "ba"]
    for _ in range(30):
        tokens = rng.choices(parts, k=rng.randrange(2, 9))
        pairs = rng.sample([(left, right) for left in parts for right in parts], 9)
        ranks = dict(zip(pairs, rng.sample(range(99), 9), strict=True))
        yield Case((tokens, ranks), one_step(tokens, ranks), origin="random")
    table = real_merges()
    for text in ("lessons", "Ġquantum", "Ġbanana", "ðŁĺĢ"):
        tokens = list(text)
        ranks = {(left, right): rank for (left, right), rank in table.items() if left in text and right in text}
        while True:
            merged = one_step(tokens, ranks)
            yield Case((tokens, ranks), merged, origin="real model")
            if merged == tokens:
                break
            tokens = merged


def one_step(tokens: list[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    """The same by another way, for expected results: replacing in a text with | between tokens."""
    text = "|".join(tokens)
    for left, right in sorted(ranks, key=lambda pair: ranks[pair]):
        at_borders = rf"(?<![^|]){re.escape(left)}\|{re.escape(right)}(?![^|])"
        merged = re.sub(at_borders, lambda match: match[0].replace("|", ""), text)
        if merged != text:
            return merged.split("|")
    return list(tokens)


EXERCISE = Exercise(
    lesson="01",
    stub=STUB,
    hints=(
        "Two things, one after the other: find out which pair is the best, then build a new list in which it is "
        "merged. zip(tokens, tokens[1:]) gives the adjacent pairs.",
        "For the new list, walk with an index i. If tokens i and i + 1 are the pair, append them joined and go on at "
        "i + 2; else append token i and go on at i + 1.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(RECURSIVE, IN_A_COPY),
)
