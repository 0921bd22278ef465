"""Numbers for people: three significant digits, never an exponent."""

from __future__ import annotations

import math


def digits(value: float) -> str:
    """`0.00421`, `4.2`, `12.3`, `1170`."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def milliseconds(seconds: float) -> str:
    return digits(seconds * 1e3)
