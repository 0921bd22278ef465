"""One colour-blind-safe palette for the token pane, the legends and every figure, in both themes.

A figure is drawn on the server, which does not know the visitor's theme, so each solid colour must stand out from the
light and from the dark page alike (at least 3:1); the token pane uses tints of the same colours under ordinary body text
(at least 4.5:1). Neighbours differ under the three common colour vision deficiencies; tests/ui pins all three statements.
"""

from __future__ import annotations

from collections.abc import Sequence

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#0f1420"
LIGHT_TEXT, DARK_TEXT = "#1c2333", "#eef1f7"
LIGHT_MUTED, DARK_MUTED = "#566074", "#a3adc0"

TARGET = "#4b5aff"
DRAFTS = ("#e17800", "#00780f", "#ff0f87", "#1e96ff", "#785ac3", "#c30f96", "#a587c3")
SOLIDS = (TARGET, *DRAFTS)
NEUTRAL = "#7c8699"  # lines and marks that stand for no model

LIGHT_TINT, DARK_TINT = 0.20, 0.42  # share of the solid colour in the tint behind a token


# The drafts that every target has keep their colour wherever they appear.
PREFERRED = {"retrieval": 1, "early-exit": 2, "quantized:int4": 3, "quantized:int8": 4, "prompt-lookup": 5, "bigram": 7}


def slot_of(model: str, models: Sequence[str]) -> int:
    """Place in `SOLIDS` of a model among `models` (the target last): the target has 0, each draft its preferred or next free one."""
    if model == models[-1] or model not in models:
        return 0
    slots: dict[str, int] = {}
    free = list(range(1, len(SOLIDS)))
    for name in sorted(models[:-1], key=lambda name: (_preferred(name) is None, name)):
        if not free:
            free = list(range(1, len(SOLIDS)))
        wanted = _preferred(name)
        slots[name] = wanted if wanted in free else free[-1]
        free.remove(slots[name])
    return slots[model]


def _preferred(name: str) -> int | None:
    return PREFERRED.get(name) or PREFERRED.get(name.partition(":")[0])


def colour_of(model: str, models: Sequence[str]) -> str:
    return SOLIDS[slot_of(model, models)]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def mix(colour: str, page: str, share: float) -> str:
    """`share` of `colour` over `page`, as #rrggbb."""
    mixed = (round(share * c + (1 - share) * p) for c, p in zip(_channels(colour), _channels(page), strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (value / 255 for value in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """Contrast ratio of WCAG 2, from 1 to 21."""
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def transparent(colour: str, alpha: float) -> str:
    red, green, blue = _channels(colour)
    return f"rgba({red},{green},{blue},{alpha:g})"


def css_variables() -> str:
    """`--m0 … --m7` (solid) and `--t0 … --t7` (tint behind a token) for the light and the dark theme."""
    solids = "".join(f"--m{slot}:{colour};" for slot, colour in enumerate(SOLIDS))
    light = "".join(f"--t{slot}:{mix(colour, LIGHT_PAGE, LIGHT_TINT)};" for slot, colour in enumerate(SOLIDS))
    dark = "".join(f"--t{slot}:{mix(colour, DARK_PAGE, DARK_TINT)};" for slot, colour in enumerate(SOLIDS))
    return (
        f":root{{{solids}{light}--hsd-page:{LIGHT_PAGE};--hsd-text:{LIGHT_TEXT};--hsd-muted:{LIGHT_MUTED};}}"
        f".dark{{{dark}--hsd-page:{DARK_PAGE};--hsd-text:{DARK_TEXT};--hsd-muted:{DARK_MUTED};}}"
    )
