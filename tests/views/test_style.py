"""The palette: legible on every ground, told apart by colour-blind readers where it must be, and the only colours."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from views.contrast import distance, ratio

from llmlesson.views import style
from llmlesson.views.style import GROUNDS, PALETTE

ROOT = Path(__file__).resolve().parents[2]
HUES = ("prompt", "answer", "query", "key", "value", "cache", "broken")
INKS = (*HUES, "ink", "ink-2")  # letters can have these
TINTS = [name for name in PALETTE if name.endswith("-tint") or name == "panel"]


def test_the_yardsticks_are_the_known_ones():
    assert ratio("#000000", "#ffffff") == pytest.approx(21)
    assert ratio("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert distance("#000000", "#ffffff", "normal") == pytest.approx(100, abs=0.1)
    assert distance("#ff0000", "#00ff00", "normal") == pytest.approx(170.6, abs=0.1)
    assert distance("#ff0000", "#008000", "deutan") < 50 < distance("#ff0000", "#008000", "normal")


@pytest.mark.parametrize("theme", GROUNDS)
@pytest.mark.parametrize("name", INKS)
def test_letters_in_a_hue_are_legible_on_page_and_panel(name, theme):
    for ground in GROUNDS[theme]:
        assert ratio(getattr(PALETTE[name], theme), ground) >= 4.5


@pytest.mark.parametrize("theme", GROUNDS)
def test_what_waits_can_be_seen(theme):
    for ground in GROUNDS[theme]:
        assert ratio(getattr(PALETTE["wait"], theme), ground) >= 3


@pytest.mark.parametrize("name", [*HUES, "wait"])
def test_the_middle_tone_can_be_seen_on_all_four_grounds(name):
    for grounds in GROUNDS.values():
        for ground in grounds:
            assert ratio(PALETTE[name].both, ground) >= 3


@pytest.mark.parametrize("theme", GROUNDS)
def test_letters_on_tints_and_on_filled_shapes_are_legible(theme):
    for tint in TINTS:
        assert ratio(getattr(PALETTE["ink"], theme), getattr(PALETTE[tint], theme)) >= 10
    for hue in HUES:
        assert ratio(getattr(PALETTE["paper"], theme), getattr(PALETTE[hue], theme)) >= 4.5


# Pairs that lie side by side: ΔE for normal, protan and deutan eyes, light and dark.
NEIGHBOURS = {
    ("prompt", "answer"): ((107, 96, 108), (104, 95, 104)),
    ("query", "key"): ((99, 66, 58), (110, 79, 68)),
    ("query", "value"): ((99, 41, 21), (81, 31, 20)),
    ("key", "value"): ((45, 29, 48), (57, 52, 61)),
    ("prompt", "cache"): ((57, 25, 32), (71, 25, 20)),
    ("answer", "cache"): ((89, 88, 80), (103, 104, 90)),
    ("answer", "broken"): ((40, 34, 19), (52, 44, 24)),
    ("answer", "wait"): ((67, 57, 62), (73, 68, 71)),
}


@pytest.mark.parametrize(("pair", "expected"), NEIGHBOURS.items())
def test_neighbours_are_as_far_apart_as_recorded_and_far_enough(pair, expected):
    for theme, distances in zip(GROUNDS, expected, strict=True):
        one, other = (getattr(PALETTE[name], theme) for name in pair)
        found = [distance(one, other, eyes) for eyes in ("normal", "protan", "deutan")]
        assert found == pytest.approx(distances, abs=1.5)
        assert min(found) > 15


def test_the_sheet_gives_each_colour_both_tones_and_follows_the_hosts_theme():
    for name, tone in PALETTE.items():
        assert f"--{name}:light-dark({tone.light},{tone.dark})" in style.SHEET
        assert f".ll .f-{name}{{fill:var(--{name})}}" in style.SHEET
    assert style.SHEET.count("{") == style.SHEET.count("}")
    for host in (*style.DARK_HOSTS, *style.LIGHT_HOSTS):
        assert f"{host} .ll" in style.SHEET


def test_without_the_sheet_a_shape_has_its_middle_tone():
    assert style.paint("prompt", "wait", 2, "4 3", 0.5) == (
        f'class="f-prompt s-wait" fill="{PALETTE["prompt"].both}" stroke="{PALETTE["wait"].both}" stroke-width="2" '
        'stroke-dasharray="4 3" opacity="0.5"'
    )
    assert style.paint() == 'fill="none"'
    assert style.css("border", "key", "1px solid") == (
        f"border:1px solid {PALETTE['key'].both};border:1px solid var(--key,{PALETTE['key'].both});"
    )
    with pytest.raises(KeyError):
        style.paint("mauve")


COLOUR = re.compile(
    r"(?<!&)(?<!href=.)#(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{6}|[0-9a-fA-F]{3,4})\b(?![\w-])"
    r"|\b(?:rgb|hsl)a?\("
    r"|\b(?:fill|stroke|color|colour|background(?:-color)?)\s*[:=]\s*[\"']?"
    r"(?:red|green|blue|orange|purple|grey|gray|black|white|yellow|pink)\b"
)


def sources():
    """Every text that may colour something, but for the module of the palette."""
    for path in sorted((ROOT / "llmlesson").rglob("*.py")):
        if path != Path(style.__file__).resolve():
            yield path, path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "site").rglob("*.css")):
        yield path, path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            yield f"{path.name}, cell {cell.id}", cell.source


def test_no_other_module_style_sheet_or_lesson_names_a_colour():
    for bad in ('fill="#0072B2"', "color: #fff;", "rgba(1,2,3,.5)", 'stroke="blue"', "background:white"):
        assert COLOUR.search(bad)
    for fine in ("&#39;", 'href="#added"', "# a face", "position #1", "[cache](#the-cache)"):
        assert not COLOUR.search(fine), fine
    found = [f"{where}: {match.group()}" for where, text in sources() for match in COLOUR.finditer(text)]
    assert found == []


def test_the_sites_icon_has_colours_of_the_palette():
    known = {tone.lower() for tones in PALETTE.values() for tone in tones}
    for path in (ROOT / "site").rglob("*.svg"):
        assert set(re.findall(r"#[0-9a-f]{6}", path.read_text().lower())) <= known
