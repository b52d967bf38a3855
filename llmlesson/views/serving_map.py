"""Who waits where, and whose answer comes from which replica, at one moment: several clients, a balancer, replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmlesson.views.markup import folded, label, note, svg, table
from llmlesson.views.seconds import duration
from llmlesson.views.style import paint, styled

if TYPE_CHECKING:
    from llmlesson.server.exchange import Exchange

ROW, HEAD = 30, 44  # height of a client's row; of the heads of the columns
CLIENT, BALANCER, REPLICA = (
    300,
    440,
    600,
)  # right edge of the clients; middle of the balancer; left edge of the replicas
WIDTH, CHIPS = 900, 150  # of the picture; of the bar of pieces that a client has

WORDS = {
    "later": "not sent yet",
    "waiting": "waits for its first word",
    "writing": "its answer comes",
    "done": "has its answer",
    "broken": "its answer broke off",
    "refused": "was refused",
}

LOOKS = {
    "writing": paint("answer-tint", "answer", 1.5),
    "waiting": paint(stroke="wait", width=1.5, dash="1.5 2.5"),
    "broken": paint(stroke="broken", width=2, dash="4 3"),
}


def moments(exchanges: Sequence[Exchange]) -> list[float]:
    """The times at which something changes: a request is sent, a piece of text arrives, a response ends."""
    return sorted({at for one in exchanges for at in (one.sent, *one.arrivals, one.ended)})


def state_at(one: Exchange, at: float) -> str:
    """How far a request is at a moment: one of WORDS."""
    if at < one.sent:
        return "later"
    if at >= one.ended:
        return "done" if not one.error else "broken" if one.arrivals else "refused"
    return "writing" if one.arrivals and at >= one.arrivals[0] else "waiting"


def serving_map(exchanges: Sequence[Exchange], at: float, names: Sequence[str] = ()) -> str:
    """What clients saw, as a picture of one moment. HTML: an SVG, and the same as a table.

    at: seconds, on the clock of the exchanges. names: of the clients; they are numbered if there are none. Raises
    ValueError without requests, and where the names don't fit.
    """
    if not exchanges or len(names) not in (0, len(exchanges)):
        raise ValueError(f"{len(exchanges)} requests, {len(names)} names")
    names = names or [str(number) for number in range(1, 1 + len(exchanges))]
    states = [state_at(one, at) for one in exchanges]
    pieces = [sum(arrived <= at for arrived in one.arrivals) for one in exchanges]
    most = max(len(one.arrivals) for one in exchanges) or 1
    replicas = sorted({one.replica for one in exchanges if one.replica not in ("", "none")})
    height = HEAD + ROW * len(exchanges) + 8
    tall = (height - HEAD - 8) / max(1, len(replicas))
    middle = (HEAD + height) / 2
    parts = [
        label(8, 20, "clients, and the text that they have", 13, bold=True),
        label(BALANCER, 20, "load balancer", 13, "middle", bold=True),
        label(REPLICA, 20, "replicas, and whose answers they write", 13, bold=True),
        f'<rect x="{BALANCER - 50}" y="{middle - 24:.1f}" width="100" height="48" rx="8" {paint("paper", "wait", 2)}/>',
        label(BALANCER, middle + 4, "chooses once", 12, "middle"),
    ]
    tops = {name: HEAD + tall * place for place, name in enumerate(replicas)}
    for name, top in tops.items():
        shown = ("waiting", "writing", "broken")
        inside = [i for i, one in enumerate(exchanges) if one.replica == name and states[i] in shown]
        parts += _replica(name, top, tall, [(names[i], states[i]) for i in inside])
    for row, (one, name, state) in enumerate(zip(exchanges, names, states, strict=True)):
        y = HEAD + ROW * row + ROW / 2
        parts += _client(y, name, state, pieces[row] / most, pieces[row])
        if state in ("waiting", "writing") and one.replica in tops:
            target = tops[one.replica] + tall / 2
            look = paint(stroke="answer", width=2.5) if state == "writing" else paint(stroke="wait", dash="1.5 2.5")
            parts.append(
                f'<path d="M{CLIENT + 6} {y:.1f} C{CLIENT + 60} {y:.1f} {BALANCER - 90} {middle:.1f} '
                f"{BALANCER - 52} {middle:.1f} M{BALANCER + 52} {middle:.1f} C{BALANCER + 90} {middle:.1f} "
                f'{REPLICA - 50} {target:.1f} {REPLICA - 4} {target:.1f}" {look}/>'
            )
    counts = {words: states.count(state) for state, words in WORDS.items() if state in states}
    spoken = f"After {duration(at)}: " + ", ".join(f"{count} × {words}" for words, count in counts.items()) + "."
    rows = [
        (name, WORDS[state], one.replica if at >= one.sent else "–", count)
        for one, name, state, count in zip(exchanges, names, states, pieces, strict=True)
    ]
    return styled(
        f"<p>{spoken}</p>"
        + svg(WIDTH, height, spoken, parts)
        + note(
            "Measured by the clients. Dotted: waits, in the balancer's queue or a replica's. Orange: text on its way."
        )
        + folded("The same as a table", table(("client", "now", "replica", "pieces of text"), rows))
    )


def _client(y: float, name: str, state: str, share: float, pieces: int) -> list[str]:
    broken = state in ("broken", "refused")
    edge = paint(stroke="broken", width=2, dash="4 3") if broken else paint(stroke="line")
    says = {"later": "", "waiting": "waits", "writing": f"{pieces} …", "done": f"{pieces} ✓", "broken": f"{pieces} ✗"}
    left = 96
    parts = [
        f'<rect x="4" y="{y - 13:.1f}" width="{CLIENT}" height="26" rx="5" {edge}/>',
        label(12, y + 4, name, 12),
    ]
    if state == "waiting":
        parts.append(
            f'<rect x="{left}" y="{y - 6:.1f}" width="{CHIPS}" height="12" '
            f"{paint(stroke='wait', width=1.5, dash='1.5 2.5')}/>"
        )
    elif share:
        parts.append(f'<rect x="{left}" y="{y - 4.5:.1f}" width="{CHIPS * share:.1f}" height="9" {paint("answer")}/>')
    text = says.get(state, "refused ✗")
    parts.append(label(CLIENT - 4, y + 4, text, 12, "end", bold=broken, colour="broken" if broken else ""))
    return parts


def _replica(name: str, top: float, tall: float, inside: Sequence[tuple[str, str]]) -> list[str]:
    parts = [
        f'<rect x="{REPLICA}" y="{top + 3:.1f}" width="{WIDTH - REPLICA - 6}" height="{tall - 6:.1f}" rx="8" '
        f"{paint('paper', 'wait', 1.5)}/>",
        label(REPLICA + 12, top + 22, f"replica {name}", 13, bold=True),
    ]
    for place, (client, state) in enumerate(inside):
        x, y = REPLICA + 12 + 68 * (place % 4), top + 32 + 26 * (place // 4)
        look = LOOKS[state]
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="62" height="22" rx="5" {look}/>')
        mark = " ✗" if state == "broken" else ""
        parts.append(label(x + 31, y + 15, client + mark, 12, "middle", colour="broken" if mark else ""))
    if not inside:
        parts.append(label(REPLICA + 12, top + 44, "has nothing to do", 12))
    return parts
