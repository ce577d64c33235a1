"""What documents and comments mention is there: `make` targets, commands with their options, files in comments.

tests/docs checks the documents' links and paths and runs their programs; tests/cli/test_docs.py checks that docs/cli.md
and docs/settings.md are complete.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from windlass.cli.main import cli

from .source import PACKAGE, ROOT, comments, expect_none, short

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
BASES = (ROOT, PACKAGE, PACKAGE / "store", PACKAGE / "runtime", ROOT / "tests")
"""What the paths in comments are relative to."""

OTHER_FILES = {
    "app.py": "the user's program",
    "path/app.py": "the user's program",
    "jobs.py": "the user's program",
    "shop.py": "the user's program",
    "shop/jobs.py": "the user's program",
    "tasks.py": "the user's program",
    "manage.py": "the user's program, made by Django",
    "settings.py": "the user's program, made by Django",
    "windlass.toml": "the user's settings",
}

FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?<![\w/.*<{:-])((?:[\w*-]+/)*[\w*-]+\.(?:py|sql|md|toml))\b(?!/)")
CODE = re.compile(r"`([^`\n]+)`")
SHELL = re.compile(r"^(?:    )?(?:\$ )?((?:make|windlass) [^\n]*?)(?: {2,}#.*)?$", re.MULTILINE)
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=short)


def test_files_that_comments_name_exist() -> None:
    found = [(comment, name) for comment in comments() if "." in comment.text for name in FILE.findall(comment.text)]

    expect_none(
        (f"{comment.file}:{comment.line} names {name}" for comment, name in found if not exists(name)),
        "no such file; name the file or the statement that took its place, or list the user's own files in OTHER_FILES",
    )


@each_document
def test_make_targets_exist(document: Path) -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    named = {words[1] for words in commands(document, "make") if re.fullmatch(r"[a-z-]+", words[1])}

    expect_none(
        (f"{short(document)} names `make {target}`" for target in named - targets),
        f"no such target in the Makefile, which has {', '.join(sorted(targets))}",
    )


@each_document
def test_commands_and_their_options_exist(document: Path) -> None:
    wrong = (problem(words) for words in commands(document, "windlass"))

    expect_none(
        (f"{short(document)}: {complaint}" for complaint in wrong if complaint),
        "the command line has no such word; write the command as `windlass --help` shows it",
    )


def commands(document: Path, program: str) -> Iterator[list[str]]:
    """The words of each command of a program: from `…` in the text, and from lines in a block."""
    text = document.read_text(encoding="utf-8")
    for line in [*CODE.findall(prose(document)), *SHELL.findall(text)]:
        words = split(line)
        if words[:1] == [program] and len(words) > 1:
            yield words


def split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote that is a letter of the prose
        return line.split()


def problem(words: list[str]) -> str | None:
    """What is wrong with a command; words in capitals and in brackets are the reader's to fill in."""
    command: click.Command = cli
    path = ["windlass"]
    for word in words[1:]:
        if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z|_-]*", word):
            break
        for name in word.split("|"):
            if name not in command.commands:
                return f"{' '.join(path)} has no command {name}"
        command = command.commands[word.split("|")[0]]
        path.append(word)
    known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    given = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z-]+(=.*)?", word)]
    missing = [option for option in given if option not in {"--help", "--version", *known}]
    return f"{' '.join(path)} has no option {', '.join(missing)}" if missing else None


def prose(document: Path) -> str:
    return FENCE.sub("", document.read_text(encoding="utf-8"))


@cache
def exists(name: str) -> bool:
    """Whether a path, perhaps with a `*`, leads to a file; a bare name may be in any folder."""
    if name in OTHER_FILES or name in names():
        return True
    return any(next(base.glob(name), None) for base in BASES)


@cache
def names() -> set[str]:
    folders = ("src", "tests", "tools", "benchmarks", "docs")
    return {path.name for folder in folders for path in (ROOT / folder).rglob("*.*")}
