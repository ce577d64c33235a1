"""The worker's path: the files that a job goes through, each with its lines In, Out and Next.

`PATH` is the list, once for this test. ARCHITECTURE.md shows the same files in its table, and each file's `Next:` names
the files of the next step, so that a reader can follow the path from client.py to its end.
"""

from __future__ import annotations

import ast
import re

import pytest

from .source import PACKAGE, ROOT, expect_none, modules, tree

PATH = (
    ("client.py",),
    ("store/postgres/store.py", "store/sqlite/store.py"),
    ("runtime/discovery.py",),
    ("store/postgres/claim.py", "store/sqlite/claim.py"),
    ("runtime/local_queue.py",),
    ("runtime/coordinator.py",),
    ("runtime/processor.py",),
    ("runtime/completer.py",),
    ("store/postgres/finish.py", "store/sqlite/finish.py"),
    ("store/parts/consequences.py",),
)
FILES = [file for step in PATH for file in step]
FOLLOWING = {file: after for step, after in zip(PATH, (*PATH[1:], ()), strict=True) for file in step}

LINE = re.compile(r"^(In|Out|Next): +(\S.*)$", re.MULTILINE)
NAMED = re.compile(r"[\w/]+\.(?:py|sql)")
ROW = re.compile(r"^\| *\d+ [^|]*\|([^|]*)\|", re.MULTILINE)


def signs(file: str) -> dict[str, str]:
    """The lines In, Out and Next of a file's docstring."""
    return dict(LINE.findall(ast.get_docstring(tree(PACKAGE / file)) or ""))


def test_each_file_of_the_path_exists() -> None:
    gone = (file for file in FILES if not (PACKAGE / file).exists())
    expect_none(gone, "the path leads through files that are gone: name in PATH what took their place")


@pytest.mark.parametrize("file", FILES)
def test_each_file_of_the_path_says_in_out_and_next(file: str) -> None:
    assert list(signs(file)) == ["In", "Out", "Next"], f"add the lines In:, Out: and Next: to the docstring of {file}"


@pytest.mark.parametrize("file", FILES)
def test_each_arrow_names_the_next_step(file: str) -> None:
    arrow = signs(file).get("Next", "").partition(",")[0]
    named = set() if arrow.startswith("none") else set(NAMED.findall(arrow))

    assert named == set(FOLLOWING[file]), (
        f"{file} says “Next: {arrow}”: write “Next: {' and '.join(FOLLOWING[file]) or 'none'}”, or change PATH "
        "when the path itself has changed"
    )


def test_only_files_of_the_path_have_arrows() -> None:
    files = (str(path.relative_to(PACKAGE)) for path in modules().values())
    expect_none(
        (file for file in files if file not in FILES and "Next" in signs(file)),
        "the lines In, Out and Next are the path's: say it in a sentence here, or add the file to PATH",
    )


def test_the_architecture_shows_the_path() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    shown = [tuple(NAMED.findall(cell.replace("src/windlass/", ""))) for cell in ROW.findall(text)]

    assert [step for step in shown if step] == list(PATH), (
        "the numbered table of ARCHITECTURE.md and PATH differ: list each step's files there, as whole paths, in order"
    )
