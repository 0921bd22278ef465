"""Numbers with units, as the page and the command line both write them."""

from __future__ import annotations


def byte_size(count: int) -> str:
    """`4 kB`, `269 MB`, `1.3 GB`, `14 GB`, in powers of ten."""
    if 0 < count < 1e6:
        return f"{count / 1e3:.0f} kB"
    if count < 1e9:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB" if count < 1e10 else f"{count / 1e9:.0f} GB"


def counted(count: int, what: str) -> str:
    """`1 repeat`, `3 repeats`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
