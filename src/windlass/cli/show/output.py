"""What a command prints: a table on a terminal, tab-separated lines in a pipe, or one JSON document.

The content of a job may come from any user of the program: it is escaped before it is printed, in all three forms.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from windlass.clock import format_span

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from rich.table import Table

NARROWEST = 20  # characters that a flexible column keeps by default: other columns are left out before it gets narrower
GAP = 2  # spaces between two columns
OWN_COMMAND = re.compile(r"(?<![\w/])windlass (?=[a-z])")  # a database in a URL may have that name, too
WITH_PROGRAM = re.compile(r"\bwindlass (dev|worker|migrate) ([\w./-]+\.py|[\w.]+:\w+)(?![\w./-])")


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    heading: str
    right: bool = False
    flexible: bool = False  # may be cut, with an ellipsis
    spare: int = 0  # left out of a narrow table, the highest first; 0: never
    least: int = NARROWEST  # characters that a flexible column keeps


class Cell(msgspec.Struct, frozen=True):
    """A value in a table: its text on a terminal, and its raw form in a pipe where that is another one."""

    text: str
    style: str = ""
    raw: str | None = None


def id_cell(id: UUID, style: str = "") -> Cell:
    """A short id on a terminal, the whole one in a pipe."""
    from windlass.cli.show.live_log import short_id

    return Cell(short_id(id), style, raw=str(id))


def number_cell(number: int, style: str = "", *, most: int | None = None) -> Cell:
    """A number; one above `most`, up to which the store counted, is shown as `10,000+`."""
    text = f"{number:,}" if most is None or number <= most else f"{most:,}+"
    return Cell(text, style, raw=str(number))


def age_cell(moment: datetime | None, now: datetime) -> Cell:
    """The age of a moment on a terminal, the moment in a pipe."""
    return Cell("", raw="") if moment is None else Cell(format_age(moment, now), raw=moment.isoformat())


def lag_cell(lag: float | None, style: str = "") -> Cell:
    """How long the oldest due job has waited: on a terminal in one unit, in a pipe in seconds."""
    return Cell("–", style, raw="") if lag is None else Cell(format_span(lag), style, raw=f"{lag:.3f}")


def print_json(value: object) -> None:
    """Print one document: on one line in a pipe, indented on a terminal."""
    from windlass.observe.logs import UNPRINTABLE

    # A document may contain a stored document with line breaks between its values. After they are removed, only strings
    # can contain unprintable characters, and there \uXXXX means the same.
    compact = msgspec.json.format(msgspec.json.encode(value).decode(), indent=-1)
    text = UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", compact)
    click.echo(msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Print columns with headings, as wide as the terminal; in a pipe whole values between tabs, and no headings."""
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(escape_text(cell.text if cell.raw is None else cell.raw) for cell in row))
        return
    from windlass.cli.show.live_log import uses_colour

    width = shutil.get_terminal_size().columns
    click.echo(_render(_make_table(columns, rows, width), width, colour=uses_colour(sys.stdout)), nl=False, color=True)


def _make_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    kept = _choose_columns(columns, rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim", show_edge=False)
    for place in kept:
        column = columns[place]
        table.add_column(column.heading, justify="right" if column.right else "left", no_wrap=not column.flexible)
    for row in rows:
        cells = (row[place] for place in kept)
        table.add_row(*(Text(escape_text(cell.text), cell.style, no_wrap=True, overflow="ellipsis") for cell in cells))
    return table


def _choose_columns(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """The positions of the columns that the width has room for."""
    from rich.cells import cell_len

    def widest(place: int) -> int:
        return max(cell_len(escape_text(text)) for text in [columns[place].heading, *(row[place].text for row in rows)])

    def least(place: int) -> int:
        return min(widest(place), columns[place].least) if columns[place].flexible else widest(place)

    kept = list(range(len(columns)))
    if sum(widest(place) + GAP for place in kept) - GAP > width:  # empty columns go first
        kept = [place for place in kept if not columns[place].spare or any(row[place].text for row in rows)]
    while sum(least(place) + GAP for place in kept) - GAP > width:
        spare = max(kept, key=lambda place: columns[place].spare)
        if columns[spare].spare == 0:
            break
        kept.remove(spare)
    return kept


def _render(table: Table, width: int, *, colour: bool) -> str:
    """The table as text: click prints it, and handles a pipe that closes."""
    import io

    from rich.console import Console

    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(table)
    return re.sub(r"[ ]+$", "", stream.getvalue(), flags=re.MULTILINE)


def print_text(text: str, *, style: str | None = None, err: bool = False) -> None:
    """Print text, in colour where the terminal and the user want colours."""
    from windlass.cli.show.live_log import uses_colour

    shown = escape_text(name_command(text) if err or style == "dim" else text, lines=True)
    wanted = style is not None and uses_colour(sys.stderr if err else sys.stdout)
    click.echo(click.style(shown, **to_click_style(style)) if wanted and style else shown, err=err, color=True)


def wrap(text: str, margin: str = "", hanging: str = "", *, err: bool = False) -> str:
    """The text, wrapped beside the margin; a long word, such as a path to copy, stays whole. In a pipe: one line."""
    import textwrap

    if not (sys.stderr if err else sys.stdout).isatty():
        return margin + text
    return textwrap.fill(
        text,
        max(len(margin) + 40, shutil.get_terminal_size().columns),
        initial_indent=margin,
        subsequent_indent=margin + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_detail(text: str, *, style: str | None = None) -> None:
    """Print what the line above means, indented below it; on a terminal the text is wrapped."""
    print_text(wrap(text, "  "), style=style)


def print_note(text: str) -> None:
    """Print an error or a remark on stderr, so that a pipe gets the answer alone."""
    lines = f"windlass: {escape_text(name_command(text), lines=True)}".splitlines()
    click.echo("\n".join(wrap(line, hanging="  ", err=True) for line in lines), err=True)


def name_command(text: str) -> str:
    """A hint, with each `windlass jobs …` in it as the user of this process can type it."""
    name = own_command()
    if name == "windlass":
        return text
    if name.endswith(("manage.py windlass", "flask windlass")):  # the project is the program
        text = WITH_PROGRAM.sub(r"windlass \1", text)
    return OWN_COMMAND.sub(lambda _: f"{name} ", text)


def own_command() -> str:
    """How the user started this command line: `windlass`, `.venv/bin/windlass`, `manage.py windlass`."""
    ctx = click.get_current_context(silent=True)
    return "windlass" if ctx is None else ctx.find_root().info_name or "windlass"


def to_click_style(style: str) -> dict[str, Any]:
    words = style.split()
    colours = [word for word in words if word not in ("bold", "dim")]
    return {"fg": colours[0] if colours else None, "bold": "bold" in words or None, "dim": "dim" in words or None}


def escape_text(text: str, *, lines: bool = False) -> str:
    """The text with its control characters escaped, so that a terminal does not obey them."""
    from windlass.observe.logs import escape

    return escape(text, lines=lines)


def format_age(moment: datetime, now: datetime) -> str:
    return format_span((now - moment).total_seconds())


def format_origin(actor: str | None, reason: str | None) -> str:
    """The actor and the reason of a change: ` by ann: the server moves`."""
    return (f" by {actor}" if actor else "") + (f": {reason}" if reason else "")


def format_count(count: int, noun: str) -> str:
    """`1 job`, `1,204 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
