"""How far apart two colours are: contrast as WCAG 2 computes it, and distance as colour-blind readers see it."""

from __future__ import annotations

# What colour-blind eyes make of linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
SEEN_BY = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
# CIE XYZ of linear sRGB, D65, and the white point.
XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
WHITE = (0.95047, 1.0, 1.08883)


def ratio(one: str, other: str) -> float:
    """1 (the same) to 21 (black on white). Colours as "#rrggbb"."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def distance(one: str, other: str, eyes: str) -> float:
    """CIE 1976 ΔE*ab of two colours, as `eyes` (a name in SEEN_BY) see them."""
    return sum((a - b) ** 2 for a, b in zip(_lab(one, eyes), _lab(other, eyes), strict=True)) ** 0.5


def _lab(colour: str, eyes: str) -> tuple[float, float, float]:
    seen = [min(max(c, 0.0), 1.0) for c in _times(SEEN_BY[eyes], _linear(colour))]
    x, y, z = (_root(c / white) for c, white in zip(_times(XYZ, seen), WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _root(t: float) -> float:
    return t ** (1 / 3) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29


def _times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    return [sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix]


def _linear(colour: str) -> list[float]:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def _luminance(colour: str) -> float:
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
