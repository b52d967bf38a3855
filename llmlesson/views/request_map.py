"""The way of a request through the stages of a service, as a picture and as a line of text."""

from __future__ import annotations

from collections.abc import Mapping

from llmlesson.views.markup import label, svg
from llmlesson.views.style import paint

STAGES = {
    "Client": ("wait", "sends your text"),
    "Load balancer": ("wait", "picks a server"),
    "LLM server": ("wait", "takes the request"),
    "Tokenizer": ("wait", "text to numbers"),
    "Prefill": ("prompt", "reads the prompt"),
    "Decode": ("answer", "a token per step"),
    "Streaming response": ("answer", "text as it comes"),
}
BOX, HIGH, GAP = 130, 54, 24  # a box, and the room for an arrow
TOP, LINE = 84, 15  # upper edge of the boxes; height of a line of a note


def request_map(notes: Mapping[str, str] | None = None) -> str:
    """The seven stages of a request as SVG: the LLM server holds the last four, and streaming runs beside decode.

    notes: what to write at a stage, by its name in STAGES; the others keep their usual line. A line break in a note
    starts a new line. Raises KeyError for an unknown stage.
    """
    lines = {name: note for name, (_, note) in STAGES.items()}
    for name, note in (notes or {}).items():
        if name not in lines:
            raise KeyError(f"there is no stage {name!r}; the stages are {', '.join(STAGES)}")
        lines[name] = note
    lefts = {name: 8 + i * (BOX + GAP) for i, name in enumerate(("Client", "Load balancer"))}
    frame = 8 + 2 * (BOX + GAP)
    lefts |= {name: frame + 16 + i * (BOX + GAP) for i, name in enumerate(("Tokenizer", "Prefill", "Decode"))}
    right = lefts["Decode"] + BOX
    deep = max(lines[name].count("\n") + 1 for name in lefts)
    stream = TOP + HIGH + LINE * deep + 34  # upper edge of the last stage
    bottom = stream + HIGH + 14
    width = right + 16
    parts = [
        f'<rect x="{frame}" y="8" width="{width - frame}" height="{bottom - 8}" rx="10" '
        f"{paint('panel', 'wait', 1.5)}/>",
        label(frame + 12, 28, "3 LLM server", 14, bold=True),
        label(frame + 12, 46, lines["LLM server"].replace("\n", " "), 12),
    ]
    for name, left in lefts.items():
        parts += _box(name, left, TOP, BOX)
        parts += [
            label(left + 4, TOP + HIGH + LINE * (i + 1), line, 12) for i, line in enumerate(lines[name].split("\n"))
        ]
    for one, other in (("Client", "Load balancer"), ("Load balancer", "Tokenizer"), ("Tokenizer", "Prefill")):
        parts.append(_right(lefts[one] + BOX, lefts[other]))
    parts.append(_right(lefts["Prefill"] + BOX, lefts["Decode"]))
    # Decode again, until the answer ends; each token leaves at once, the first one from prefill.
    a, b, top = lefts["Decode"] + BOX - 24, lefts["Decode"] + 24, TOP
    parts.append(
        f'<path d="M{a} {top} C{a} {top - 30} {b} {top - 30} {b} {top - 8}" {paint(stroke="answer", width=2)}/>'
    )
    parts.append(f'<path d="M{b - 5} {top - 9} h10 l-5 9 z" {paint("answer")}/>')
    parts.append(label((a + b) / 2, top - 26, "again", 12, "middle"))
    for name in ("Prefill", "Decode"):
        x = lefts[name] + BOX - 6
        parts.append(f'<path d="M{x} {TOP + HIGH} V{stream - 8}" {paint(stroke="answer", width=2)}/>')
        parts.append(f'<path d="M{x - 5} {stream - 9} h10 l-5 9 z" {paint("answer")}/>')
    parts.append(label(lefts["Prefill"] + BOX - 16, stream - 8, "first token", 12, "end"))
    parts.append(label(lefts["Decode"] + BOX - 16, stream - 8, "each further one", 12, "end"))
    parts += _box("Streaming response", lefts["Prefill"], stream, right - lefts["Prefill"])
    note = lines["Streaming response"].replace("\n", " ")
    parts.append(label(lefts["Prefill"] + (right - lefts["Prefill"]) / 2, stream + 44, note, 12, "middle"))
    x, y = lefts["Client"] + BOX - 8, stream + HIGH / 2
    parts.append(f'<path d="M{lefts["Prefill"]} {y} H{x} V{TOP + HIGH + 8}" {paint(stroke="answer", width=2)}/>')
    parts.append(f'<path d="M{x - 5} {TOP + HIGH + 9} h10 l-5 -9 z" {paint("answer")}/>')
    parts.append(label(frame - 10, y - 7, "text, a piece at a time", 12, "end"))
    spoken = "; ".join(f"{i}. {name}: {lines[name]}" for i, name in enumerate(STAGES, start=1))
    inside = "The LLM server holds the tokenizer, prefill, decode and streaming. Streaming runs beside decode."
    return svg(width + 4, bottom + 4, f"The way of a request. {spoken}. {inside} Decode repeats until the end.", parts)


def _box(name: str, left: float, top: float, width: float) -> list[str]:
    colour = STAGES[name][0]
    look = paint("paper" if colour == "wait" else f"{colour}-tint", colour, 2)
    lines = [name] if width > BOX else name.split(" ")
    first = top + (26 if width > BOX or len(lines) > 1 else 33)
    return [
        f'<rect x="{left}" y="{top}" width="{width}" height="{HIGH}" rx="8" {look}/>',
        label(left + 8, top + 16, list(STAGES).index(name) + 1, 12),
        *(label(left + width / 2, first + 18 * i, line, 14, "middle", bold=True) for i, line in enumerate(lines)),
    ]


def _right(start: float, end: float) -> str:
    y = TOP + HIGH / 2
    return (
        f'<path d="M{start + 3} {y} H{end - 9}" {paint(stroke="ink", width=1.5)}/>'
        f'<path d="M{end - 10} {y - 4.5} v9 l8 -4.5 z" {paint("ink")}/>'
    )


def here(*stages: str) -> str:
    """The same way as a line of Markdown, with these stages marked: the head of a lesson. Unknown stage: KeyError."""
    for stage in stages:
        STAGES[stage]

    def marked(name: str) -> str:
        return f"**▸ {name}**" if name in stages else name

    inside = " → ".join(marked(name) for name in ("Tokenizer", "Prefill", "Decode"))
    way = " → ".join(marked(name) for name in ("Client", "Load balancer", "LLM server"))
    return f"*You are here:* {way} [ {inside} ⇉ {marked('Streaming response')} ]"
