"""The decode loop in one picture."""

from __future__ import annotations

from collections.abc import Mapping

from llmlesson.views.markup import label, svg
from llmlesson.views.style import paint

# By name: column, row, colour, what it does.
BOXES = {
    "Prefill": (0, 0, "prompt", "reads the prompt, once"),
    "Scores": (1, 0, "wait", "one for every token"),
    "Choose": (2, 0, "wait", "one of them"),
    "Stop?": (3, 0, "wait", "is there a reason"),
    "End": (4, 0, "wait", "with its reason"),
    "Decode": (1, 1, "answer", "reads one token"),
    "Stream": (3, 1, "answer", "text as it comes"),
}
WIDTH, HEIGHT, ACROSS, DOWN = 148, 40, 186, 118  # of a box; from one box to the next
# From, to, the label beside the arrow.
ARROWS = (
    ("Prefill", "Scores", ""),
    ("Scores", "Choose", ""),
    ("Choose", "Stop?", ""),
    ("Stop?", "End", "yes"),
    ("Stop?", "Stream", "no"),
    ("Stream", "Decode", "the chosen token"),
    ("Decode", "Scores", ""),
)


def loop_map(notes: Mapping[str, str] | None = None) -> str:
    """Prefill, then round and round: scores, choose, stop or stream, decode; SVG.

    notes: what to write under a box, by its name in BOXES; the others keep their usual line. A line break in a note
    starts a new line, and three lines fit. Raises KeyError for an unknown box.
    """
    lines = {name: note for name, (_, _, _, note) in BOXES.items()}
    for name, note in (notes or {}).items():
        if name not in lines:
            raise KeyError(f"there is no box {name!r}; the boxes are {', '.join(BOXES)}")
        lines[name] = note
    parts = [_box(name, lines[name]) for name in BOXES] + [_arrow(*arrow) for arrow in ARROWS]
    spoken = "; ".join(f"{name}: {note}" for name, note in lines.items())
    return svg(
        4 * ACROSS + WIDTH + 8, 2 * DOWN + 4, f"The decode loop. {spoken}. After Decode come Scores again.", parts
    )


def _corner(name: str) -> tuple[int, int]:
    column, row, _, _ = BOXES[name]
    return 4 + column * ACROSS, 4 + row * DOWN


def _box(name: str, note: str) -> str:
    left, top = _corner(name)
    colour, middle = BOXES[name][2], left + WIDTH / 2
    look = paint("panel" if colour == "wait" else f"{colour}-tint", colour, 2)
    return "".join(
        [
            f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="8" {look}/>',
            label(middle, top + 26, name, 15, "middle", bold=True),
            *(label(middle, top + HEIGHT + 17 + 15 * i, line, 12, "middle") for i, line in enumerate(note.split("\n"))),
        ]
    )


def _arrow(start: str, end: str, beside: str) -> str:
    (x, y), (to_x, to_y) = _corner(start), _corner(end)
    if y == to_y:
        step = 1 if to_x > x else -1
        begin, tip = (x + WIDTH + 3, to_x - 3) if step == 1 else (x - 3, to_x + WIDTH + 3)
        level = y + HEIGHT / 2
        head = f"M{tip} {level} l{-9 * step} -5 v10 z"
        word = label((begin + tip) / 2, level - 8, beside, 11, "middle")
        return f'{_line(f"M{begin} {level} H{tip - 8 * step}")}<path d="{head}" fill="currentColor"/>{word}'
    # Up or down, beside the notes that stand in the middle of the column.
    across = x + WIDTH - 8
    step = 1 if to_y > y else -1
    begin, tip = (y + HEIGHT + 3, to_y - 3) if step == 1 else (y - 3, to_y + HEIGHT + 3)
    head = f"M{across} {tip} l-5 {-9 * step} h10 z"
    word = label(across + 8, (begin + tip) / 2 + 4, beside, 11)
    return f'{_line(f"M{across} {begin} V{tip - 8 * step}")}<path d="{head}" fill="currentColor"/>{word}'


def _line(path: str) -> str:
    return f'<path d="{path}" stroke="currentColor" stroke-width="1.5"/>'
