"""A report as Markdown; figures become tables, and nothing a model wrote is read as markup."""

from __future__ import annotations

import re

from hsd.export.numbers import digits
from hsd.export.parts import Bars, Report, Section, Table

_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~$&:@]")


def write_markdown(report: Report) -> str:
    """GitHub-flavoured Markdown."""
    parts = [f"# {literal(report.title)}", f"**{literal(report.answer)}**", *(_section(section) for section in report.sections)]
    return "\n\n".join(parts) + "\n"


def literal(text: str) -> str:
    """Text that every Markdown reader shows as it stands: characters with a meaning become entities."""
    one_line = "".join(character if character.isprintable() else " " for character in text)
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", one_line)


def _section(section: Section) -> str:
    blocks = [_table(block) if isinstance(block, Table) else _bars(block) for block in section.blocks]
    return "\n\n".join([f"## {literal(section.title)}", *map(literal, section.paragraphs), *blocks])


def _table(table: Table) -> str:
    lines = [_row(table.header), "|" + "---|" * len(table.header), *(_row(row) for row in table.rows)]
    return f"{literal(table.caption)}\n\n" + "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(literal(cell) for cell in cells) + " |"


def _bars(bars: Bars) -> str:
    rows = tuple(
        (bar.label, digits(bar.value), "" if bar.low is None or bar.high is None else f"{digits(bar.low)} to {digits(bar.high)}")
        for bar in bars.bars
    )
    return _table(Table(f"{bars.caption}, {bars.unit}", ("", bars.unit, bars.range_name), rows))
