"""The colours of the course, by meaning. No other module names a colour; docs/style.md says how to use them.

Reading is blue, writing is orange, looking is green, what is kept is purple; red is broken, grey waits or is neutral.
Shapes tell a token from work and from memory, so that no two things differ by colour alone.

A picture carries `SHEET` and the class "ll". In a known theme, each colour then has the tone for that theme. If the
sheet is removed (JupyterLab does that until a notebook is trusted), attributes give the middle tone, which has a
contrast of at least 3 on both light and dark pages.
"""

from __future__ import annotations

from typing import NamedTuple


class Tone(NamedTuple):
    """One colour on a light page, on a dark page, and one that will do on both."""

    light: str
    dark: str
    both: str


PALETTE = {
    "prompt": Tone("#0A72C2", "#6CC0FF", "#2585D6"),  # a token of the prompt (chip), prefill (bar)
    "answer": Tone("#A85B00", "#F5A742", "#BF7313"),  # a token of the answer (chip), decode (bar), streaming
    "query": Tone("#00684F", "#2DBE93", "#1D9673"),  # a query; the weight of attention, as its scale
    "key": Tone("#4B1E8C", "#8F7BF5", "#7559DB"),
    "value": Tone("#C2378F", "#FDB7DA", "#D65AA8"),
    "cache": Tone("#821475", "#D85CC4", "#AE3E9F"),  # the KV cache as one line; as an area it is key over value
    "wait": Tone("#868C95", "#838A94", "#868C95"),  # waits, or is neutral; graphics only
    "broken": Tone("#A80A22", "#FF5C5C", "#DB3A45"),  # wrong, lost, dead; always with a ✗
    "ink": Tone("#1B1E23", "#ECEAE4", "currentColor"),
    "ink-2": Tone("#5A5F68", "#A9AEB7", "currentColor"),  # quiet text
    "paper": Tone("#FFFFFF", "#111111", "#FFFFFF"),  # letters on a filled shape
    # Grounds under ink, and hairlines. In the middle tone they let the page show through.
    "prompt-tint": Tone("#E2F0FB", "#16324A", "#2585D633"),
    "answer-tint": Tone("#FCECD6", "#43300F", "#BF731333"),
    "query-tint": Tone("#DCF1EA", "#12382D", "#1D967333"),
    "cache-tint": Tone("#F7E6F4", "#3D1F39", "#AE3E9F33"),
    "panel": Tone("#F7F6F3", "#1D2026", "#868C951A"),
    "line": Tone("#D9D7D0", "#363B44", "#868C9573"),
}
GROUNDS = {"light": ("#FFFFFF", "#F7F6F3"), "dark": ("#111111", "#1D2026")}  # the pages and panels that pictures lie on

PLOT_FONT = "llmlesson-ink"  # no font: a mark, by which the sheet finds the letters of our plots

DARK_HOSTS = 'body[data-jp-theme-light="false"]', 'html[data-theme="dark"]', 'html[theme="dark"]', "body.vscode-dark"
LIGHT_HOSTS = 'body[data-jp-theme-light="true"]', 'html[data-theme="light"]', "body.vscode-light"


def _sheet() -> str:
    tones = "".join(f"--{name}:light-dark({tone.light},{tone.dark});" for name, tone in PALETTE.items())
    paints = "".join(f".ll .f-{name}{{fill:var(--{name})}}.ll .s-{name}{{stroke:var(--{name})}}" for name in PALETTE)
    schemes = "".join(
        f"{','.join(f'{host} .ll' for host in hosts)}{{color-scheme:{scheme}}}"
        for hosts, scheme in ((DARK_HOSTS, "dark"), (LIGHT_HOSTS, "light"))
    )
    # An older browser keeps the middle tones; letters of a plot take the page's colour, since no grey is dark enough on
    # white and light enough on black.
    return (
        f"<style>@supports (color:light-dark(red,red)){{.ll{{{tones}}}{paints}}}{schemes}"
        f'.js-plotly-plot text[style*="{PLOT_FONT}"]{{fill:currentColor!important}}</style>'
    )


SHEET = _sheet()


def styled(html: str) -> str:
    """`html` with the course's colours."""
    return f'<div class="ll">{SHEET}{html}</div>'


def paint(
    fill: str | None = None,
    stroke: str | None = None,
    width: float = 1,
    dash: str = "",
    opacity: float = 1,
) -> str:
    """Attributes of an SVG element: names of colours for its fill and its outline. Neither is drawn unless named.

    width, dash: of the outline, as `stroke-width` and `stroke-dasharray` have them. Raises KeyError for no colour.
    """
    classes = [f"f-{fill}"] if fill else []
    attributes = [f'fill="{PALETTE[fill].both if fill else "none"}"']
    if stroke:
        classes.append(f"s-{stroke}")
        attributes.append(f'stroke="{PALETTE[stroke].both}" stroke-width="{width:g}"')
        if dash:
            attributes.append(f'stroke-dasharray="{dash}"')
    if opacity != 1:
        attributes.append(f'opacity="{opacity:.2g}"')
    return " ".join([f'class="{" ".join(classes)}"', *attributes] if classes else attributes)


def css(property_name: str, name: str, before: str = "") -> str:
    """A CSS declaration for an HTML element: `css("border", "wait", "1px solid")`. Raises KeyError for no colour."""
    tone = PALETTE[name].both
    first = f"{before} " if before else ""
    # Twice: a filter that doesn't know var() drops the second alone.
    return f"{property_name}:{first}{tone};{property_name}:{first}var(--{name},{tone});"


def border(name: str, line: str) -> str:
    """The value of a CSS border in a colour of the palette. Raises KeyError for no colour."""
    return f"{line} var(--{name},{PALETTE[name].both})"


def see_through(name: str, share: float) -> str:
    """The middle tone of a colour with this opacity, as rgba(): for plotly, which knows neither themes nor classes."""
    digits = PALETTE[name].both
    red, green, blue = (int(digits[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share:g})"
