"""The worker's path: the files that a job goes through, each with its lines In, Out and Next.

The numbered table of ARCHITECTURE.md is the list. Each file's `Next:` names the files of the next row, so that a reader
can follow the path from client.py to its end.
"""

from __future__ import annotations

import ast
import re

from .source import PACKAGE, ROOT, expect_none, modules, tree

ROW = re.compile(r"^\| *\d+ [a-z ]+\| *`(?:src/windlass/)?([\w/<>]+\.py)`", re.MULTILINE)
LINE = re.compile(r"^(In|Out|Next): +(\S.*)$", re.MULTILINE)
NAMED = re.compile(r"[\w/]+\.\w+")
DIALECTS = ("postgres", "sqlite")


def path() -> list[list[str]]:
    """The files of each step: one, or one per dialect."""
    rows = ROW.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    return [sorted({row.replace("<dialect>", dialect) for dialect in DIALECTS}) for row in rows]


def files() -> list[str]:
    return [file for step in path() for file in step]


def lines(file: str) -> dict[str, str]:
    """The lines In, Out and Next of a file's docstring."""
    place = PACKAGE / file
    return dict(LINE.findall(ast.get_docstring(tree(place)) or "")) if place.exists() else {}


def arrow(file: str) -> str:
    """What `Next:` says up to its first comma."""
    return re.split(r"[,;]", lines(file).get("Next", ""))[0]


def test_the_architecture_shows_the_path() -> None:
    assert path()[:1] == [["client.py"]], "the numbered table of ARCHITECTURE.md begins with the file `client.py`"
    assert len(path()) >= 9, "give each step a row in ARCHITECTURE.md, such as: | 3 discover | `runtime/discovery.py` |"
    expect_none(
        (file for file in files() if not (PACKAGE / file).exists()),
        "the path of ARCHITECTURE.md leads through files that are gone: name there what took their place",
    )
    expect_none(
        {file for file in files() if files().count(file) > 1},
        "the path of ARCHITECTURE.md comes twice through these files: a step has a file of its own",
    )


def test_each_file_of_the_path_says_in_out_and_next() -> None:
    expect_none(
        (file for file in files() if list(lines(file)) != ["In", "Out", "Next"]),
        "add the lines In:, Out: and Next:, in this order, to the docstrings of these files",
    )


def test_each_arrow_leads_to_the_next_step() -> None:
    following = {file: after for step, after in zip(path(), [*path()[1:], ["none"]], strict=True) for file in step}
    named = {file: sorted(NAMED.findall(arrow(file))) or [arrow(file)] for file in files()}

    expect_none(
        (
            f"{file} says “Next: {arrow(file)}” and should say “Next: {' and '.join(following[file])}, …”"
            for file in files()
            if named[file] != following[file]
        ),
        "correct these lines, or the table of ARCHITECTURE.md where the path itself has changed",
    )


def test_only_files_of_the_path_have_arrows() -> None:
    found = (str(place.relative_to(PACKAGE)) for place in modules().values())
    expect_none(
        (file for file in found if file not in files() and "Next" in lines(file)),
        "In, Out and Next are for the path: say it in a sentence here, or add a row to the table of ARCHITECTURE.md",
    )
