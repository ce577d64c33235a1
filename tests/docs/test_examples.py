"""The examples of README.md and docs/*.md run as they are written.

A fenced block whose first line names a file, `# shop.py`, is that file. The files of one document are put into one
directory; its tests are run by pytest, its other programs by Python. A Python block without a name is an excerpt, and
stands in EXCERPTS with the reason why it cannot run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import url_of

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"# ([\w/]+\.(?:py|toml|ini))$")
SECONDS = 120  # for one document's examples

EXCERPTS = {
    ("README.md", "from windlass import Context, Dead, Retry"): "uses a mailer, a table and a server of the reader's",
    ("README.md", "with Session.begin() as session:"): "uses a SQLAlchemy session and an order of the reader's",
}
"""By document and the beginning of the block."""


def to_run() -> Iterator[Any]:
    """Documents with tests run on both stores, those with programs only on SQLite."""
    for document in DOCUMENTS:
        names = [name for name in files_in(document) if name.endswith(".py")]
        if any(name.startswith("test_") for name in names):
            yield pytest.param(document, "postgres", id=f"{document.name}-postgres")
        if names:
            yield pytest.param(document, "sqlite", id=f"{document.name}-sqlite")


def test_there_is_something_to_run() -> None:
    assert {"README.md", "testing.md"} <= {parameter.values[0].name for parameter in to_run()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        metafunc.parametrize(("document", "store"), list(to_run()))


def test_the_files_in_a_document_work(document: Path, store: str, tmp_path: Path) -> None:
    files = files_in(document)
    tests = [name for name in files if name.startswith("test_")]
    programs = [name for name in files if name.endswith(".py") and name not in [*tests, "conftest.py"]]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    for program in programs:
        run(tmp_path, sys.executable, program)
    if tests:
        plugins = ("-p", "windlass.testing.plugin", "-p", "pytest_asyncio.plugin")
        run(tmp_path, sys.executable, "-m", "pytest", "-q", *plugins, *where(store), *tests)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_a_block_that_does_not_run_has_its_reason(document: Path) -> None:
    known = [beginning for name, beginning in EXCERPTS if name == document.name]
    unnamed = [text for language, text in blocks_in(document) if language == "python" and not NAME.match(first(text))]

    assert [text for text in unnamed if not text.startswith(tuple(known))] == [], (
        "name a file in the block's first line (# shop.py), or give the reason in EXCERPTS"
    )
    assert [beginning for beginning in known if not any(text.startswith(beginning) for text in unnamed)] == []


def files_in(document: Path) -> dict[str, str]:
    """Each file by its name; a block with a name that appeared before continues that file."""
    files: dict[str, str] = {}
    for _, text in blocks_in(document):
        named = NAME.match(first(text))
        if named:
            files[named[1]] = files.get(named[1], "") + text
    return files


def blocks_in(document: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(document.read_text(encoding="utf-8"))


def first(text: str) -> str:
    return text.partition("\n")[0]


def where(store: str) -> list[str]:
    if store == "sqlite":
        return []
    return [f"--windlass-url={url_of('postgres')}"]


def run(directory: Path, *command: str) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "WINDLASS_"))},
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    ended = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
