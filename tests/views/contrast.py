"""Contrast of a colour on JupyterLab's light and dark page, as WCAG 2 computes it."""

from __future__ import annotations

PAGES = {"light": ("#ffffff", "#212121"), "dark": ("#111111", "#ffffff")}  # the page, and its letters


def ratio(one: str, other: str) -> float:
    """1 (the same) to 21 (black on white). Colours as "#rrggbb"."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def over(colour: str, opacity: float, page: str) -> str:
    """The colour that is seen where `colour` lies half transparent on `page`."""
    mixed = [round(opacity * c + (1 - opacity) * p) for c, p in zip(_channels(colour), _channels(page), strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _luminance(colour: str) -> float:
    red, green, blue = (
        c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _channels(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
