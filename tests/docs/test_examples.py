"""The examples of README.md and docs/*.md run as they are written.

A fenced block whose first line names a file, `# shop.py`, is that file. The files of one document are put into one
directory; its tests are run by pytest, its other programs by Python. A Python block without a name is an excerpt, and
stands in EXCERPTS with the reason why it cannot run.

The lines of a `console` block are typed into a real shell, in the order of the document. A line below a command is what
the command prints. No line leaves a file that it should not: `age:>1h` without quotes would leave a file `1h`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cli.cli_store import CliStore
from servers import url_of
from windlass.model.admission import Rule
from windlass.model.state import Verb

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
CONSOLES = [document for document in DOCUMENTS if "\n```console\n" in document.read_text(encoding="utf-8")]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"# ([\w/]+\.(?:py|toml|ini))$")
SECONDS = 120  # for one document's examples

EXCERPTS = {
    ("README.md", "from windlass import Context, Dead, Snooze"): "uses a mailer, a table and a server of the reader's",
    ("README.md", "with Session.begin() as session:"): "uses a SQLAlchemy session and an order of the reader's",
}
"""By document and the beginning of the block."""

STARTS = re.compile(r"(\S+ )*windlass (dev|worker|web)\b")
"""Lines that run until they are stopped: each is started, runs beside the lines after it, and is stopped at the end."""
READY = re.compile(r"job types: |worker \S+ started as |HTTP API at http")

STANDINS = {
    "make": f'exec {shutil.which("make")} --dry-run -C {ROOT} "$@"',  # the demo never ends, and `test` runs this suite
    "pip": 'test "$*" = "install .[web]"',  # installs from the network
    "uvicorn": 'test "$*" = "api:api"',  # serves until it is stopped
}
"""Programs of the reader's that are not run: each line reaches them with the right arguments."""

ANSWERS = {
    "windlass jobs replay error:Timeout": (2, "nothing was changed: this is not a terminal"),
}
"""Lines that ask a question on a terminal, and what they answer without one: the exit code, and a part of stderr."""

PROGRAMS = {
    "frameworks.md": {
        "manage.py": """
import os, sys
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
execute_from_command_line(sys.argv)
""",
        "site_settings.py": """
from settings import *
SECRET_KEY = "none"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}}
""",
        "shop/__init__.py": "",
        "shop/jobs.py": """
from windlass.integrations.django import app

@app.job
def thank(email: str) -> int:
    return 1
""",
    },
}
"""The programs that a document's commands name and that its reader has written."""


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


# Console lines


def test_there_is_something_to_type() -> None:
    assert {"README.md", "cli.md", "frameworks.md"} <= {document.name for document in CONSOLES}


@pytest.mark.parametrize("document", CONSOLES, ids=lambda document: document.name)
def test_every_console_line_works_in_a_shell(document: Path, tmp_path: Path) -> None:
    given_programs(document, tmp_path)
    terminal = Terminal(tmp_path)
    try:
        if document.name == "frameworks.md":
            terminal.type("python manage.py windlass migrate")
        given_jobs(tmp_path)
        before = names_in(tmp_path)
        for line, printed in console_lines(document):
            terminal.start(line) if STARTS.match(line) else terminal.type(line, printed)
            assert names_in(tmp_path) == before, f"{line} left a file"
    finally:
        terminal.stop()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_no_command_in_a_sentence_is_a_redirect(document: Path) -> None:
    commands = re.findall(r"`(windlass [^`]*)`", document.read_text(encoding="utf-8"))
    words = {
        command: list(shlex.shlex(command.replace("\n", " "), posix=True, punctuation_chars=True))
        for command in commands
    }

    assert [command for command, typed in words.items() if {"<", ">", ">=", "<="} & {*typed}] == []


def given_programs(document: Path, directory: Path) -> None:
    for name, text in {**files_in(document), **PROGRAMS.get(document.name, {})}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    for name, text in STANDINS.items():
        script = directory / ".bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)


def given_jobs(directory: Path) -> None:
    """A job with the id of the documents, a dead one, and one that holds the key of a limit."""
    store = CliStore(f"sqlite:///{directory}/windlass.db")
    run(directory, sys.executable, "-m", "windlass", "migrate", "--url", store.url)
    worker = store.register_worker(lease=10 * SECONDS)
    store.call(lambda each: each.declare([Rule(name="domain", most=2)]))
    store.enqueue(limits=("domain:example.org",))
    store.claim_one(worker)
    store.fail_job(verb=Verb.BURY, worker=worker)
    store.enqueue(id=UUID("9f3c21ab-7b1e-7a52-9c3d-5e6f70819203"))


class Terminal:
    """A shell in the document's directory, and the commands that still run in it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[tuple[str, subprocess.Popen[str]]] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "WINDLASS_"))},
            "PATH": f"{directory}/.bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def type(self, line: str, printed: str = "") -> None:
        """Run the line to its end."""
        shell = ["bash", "-c"]
        if "| source" in line:  # the line of another shell, with the same pipe
            shell = ["fish", "-c"] if shutil.which("fish") else shell
            line = line if shutil.which("fish") else line.replace("| source", "| cat > /dev/null")
        ended = subprocess.run(
            [*shell, line],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        code, why = next((answer for start, answer in ANSWERS.items() if line.startswith(start)), (0, ""))
        assert ended.returncode == code, f"{line}\n{ended.stdout}{ended.stderr}"
        assert why in ended.stderr
        assert not printed or ended.stdout == printed, line

    def start(self, line: str) -> None:
        """Start the line, and wait until its worker or server has started; a server takes a free port."""
        line = line.replace("windlass web", "windlass web --port 0")
        process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append((line, process))
        assert process.stderr is not None
        seen = ""
        for text in process.stderr:
            seen += text
            if READY.search(text):
                return
        pytest.fail(f"{line} ended:\n{seen}")

    def stop(self) -> None:
        """End what was started; each of them ends cleanly."""
        for _, process in self._started:
            process.send_signal(signal.SIGTERM)
        codes = {}
        for line, process in self._started:
            try:
                _, rest = process.communicate(timeout=SECONDS)
                codes[line] = (process.returncode, "" if process.returncode == 0 else rest)
            finally:
                process.kill()
        assert codes == {line: (0, "") for line, _ in self._started}


def console_lines(document: Path) -> Iterator[tuple[str, str]]:
    """Each command, and the lines below it that it prints."""
    for language, text in blocks_in(document):
        if language == "console":
            for part in text.removeprefix("$ ").split("\n$ "):
                command, _, printed = part.rstrip("\n").partition("\n")
                yield command, f"{printed}\n" if printed else ""


def names_in(directory: Path) -> set[str]:
    """The files of a directory, without those of databases and of Python."""
    return {name for path in directory.iterdir() if not re.search(r"\.(db|db-wal|db-shm|lock)$|^__", name := path.name)}


# Blocks


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
