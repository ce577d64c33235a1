"""Reads a CSV file of entries. A file with problems is refused as a whole, and the message names its lines."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from _csv import Reader

MOST = 100_000  # rows of a file
LONGEST = 250  # characters of a name: no search takes more
SHOWN = 10  # problems


class Entry(NamedTuple):
    """A row. Dates are as they were written; `born` and `died` are years or days."""

    name: str
    born: str = ""
    died: str = ""
    description: str = ""


class Unreadable(ValueError):
    """The file is no list of entries; the message says where and why."""


class TooManyRows(Unreadable):
    """The file has more rows than one upload may have."""


def read_entries(file: bytes) -> list[Entry]:
    """All rows of a file: comma, semicolon or tab; UTF-8, or UTF-16 with a BOM. Other columns are left out."""
    text = _decode(file)
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), strict=True)
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        if "name" not in columns:
            raise Unreadable("the first line has no column `name`; the columns are: name, born, died, description")
        found, problems = _read_rows(reader, columns)
    except csv.Error as error:
        raise Unreadable(f"line {reader.line_num}: {error}") from None
    if problems:
        more = f"; and {len(problems) - SHOWN} lines more" if len(problems) > SHOWN else ""
        raise Unreadable("; ".join(problems[:SHOWN]) + more)
    if not found:
        raise Unreadable("the file has no rows")
    return found


def _read_rows(reader: Reader, columns: list[str]) -> tuple[list[Entry], list[str]]:
    places = [columns.index(name) if name in columns else None for name in Entry._fields]
    found: list[Entry] = []
    problems: list[str] = []
    for row in reader:
        if not row:  # an empty line
            continue
        if len(found) + len(problems) == MOST:
            raise TooManyRows(f"a file has {MOST:,} rows at most; split it, and upload the parts into one project")
        if len(row) != len(columns):
            problems.append(f"line {reader.line_num} has {len(row)} columns, and the first line {len(columns)}")
            continue
        entry = Entry(*("" if place is None else row[place].strip() for place in places))
        if not entry.name or len(entry.name) > LONGEST:
            problems.append(f"line {reader.line_num}: a name has 1 to {LONGEST} characters, not {len(entry.name)}")
        found.append(entry)
    return found, problems


def _decode(file: bytes) -> str:
    try:
        text = file.decode("utf-16" if file.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = file.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"line {line} is not in {error.encoding.upper()}; save the file as `CSV UTF-8`") from None
    if "\0" in text:
        raise Unreadable("the file has a NUL character; save it as `CSV UTF-8`")
    return text
