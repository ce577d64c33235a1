"""`windlass` in a shell: closed pipes, interrupts, completion, and a quick start."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from windlass.cli.main import cli
from windlass.model.admission import Rule

from .cli_store import CliStore
from .conftest import APP, PATIENCE, Start


@pytest.mark.parametrize(
    "command", [("jobs", "list"), ("jobs", "list", "--json"), ("config",), ("doctor",), ("queues",)]
)
def test_a_pipe_that_closes_ends_it_quietly(file_cli_store: CliStore, command: tuple[str, ...]) -> None:
    file_cli_store.enqueue(3)
    reader, writer = os.pipe()
    os.close(reader)

    ended = subprocess.run(
        [sys.executable, "-m", "windlass", *command],
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "WINDLASS_URL": file_cli_store.url},
        check=False,
    )
    os.close(writer)

    assert b"Traceback" not in ended.stderr
    assert b"Broken" not in ended.stderr
    assert ended.returncode == 141


def test_an_interrupt_while_something_runs_is_exit_130_and_no_traceback(program_dir: Path, start: Start) -> None:
    slow = "import os, sqlite3, time\nos.write(1, b'here\\n')\ntime.sleep(60)\n"
    (program_dir / "slow.py").write_text(slow)
    running = start("config", "slow.py")
    running.expect("here")

    running.signal(signal.SIGINT)

    assert running.wait() == 130
    assert "Traceback" not in running.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell], prog_name="windlass")

    assert result.exit_code == 0
    assert "_WINDLASS_COMPLETE" in result.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=result.stdout.encode(), check=True)


def complete(line: str, **environment: str) -> list[str]:
    """What bash offers at a tab behind this line; bash itself splits the words, and joins what it gets."""
    script = CliRunner().invoke(cli, ["completion", "bash"], prog_name="windlass").stdout
    words = f"""{script}
        compopt() {{ :; }}
        COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
        _windlass_completion windlass
        printf '%s\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", words],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout.split()


def test_a_tab_offers_commands_fields_and_states(program_dir: Path) -> None:
    assert complete("windlass que") == ["queues"]
    assert {"list", "show", "replay", "state:", "age:", "input."} <= {*complete("windlass jobs ")}
    assert complete("windlass jobs re") == ["replay", "rerun", "resume", "retry", "reason:"]
    assert complete("windlass jobs list state:de") == ["dead"]  # bash replaces what stands after the colon
    assert complete("windlass jobs state:dead,f") == ["dead,failed"]
    assert complete("windlass jobs -ten") == ["-tenant:"]


def test_a_tab_offers_programs_and_jobs_and_runs_no_program(program_dir: Path) -> None:
    (program_dir / "app.py").write_text(f"{APP}\nopen('ran', 'w')\n")
    (program_dir / "inner").mkdir()
    (program_dir / "broken.py").write_text("def")

    assert complete("windlass worker a") == ["app.py"]
    assert complete("windlass queues -a ") == ["app.py", "broken.py", "inner/"]
    assert complete("windlass worker app.py:") == ["app"]
    assert complete("windlass run ") == ["app:add", "app:greet", "app:fail", "app:hold"]
    assert complete("windlass run app:g") == ["greet"]
    assert complete("windlass enqueue app.py:h") == ["hold"]
    assert complete("windlass run broken:") == []
    assert complete("windlass jobs -a app.py queue:") == []  # the names of a database, which the program would name
    assert not (program_dir / "ran").exists()


def test_a_tab_offers_the_names_in_the_store(cli_store: CliStore) -> None:
    cli_store.enqueue(queue="mail", tenant="acme")
    cli_store.enqueue(queue="two words")
    cli_store.register_worker(queues=("report",))
    cli_store.call(lambda store: store.declare([Rule(name="wikidata", most=2)]))
    cli_store.enqueue(limits=("wikidata",), queue="mail")
    cli_store.claim_jobs()

    def offered(line: str) -> list[str]:
        return complete(line, WINDLASS_URL=cli_store.url)

    assert offered("windlass gates pause --queue ") == ["mail", "report"]
    assert offered("windlass jobs queue:m") == ["mail"]
    assert offered("windlass worker app.py --type ") == ["send"]
    assert offered("windlass tenants weigh a") == ["acme"]
    assert offered("windlass limits show ") == ["wikidata"]
    assert offered(f"windlass budgets set --url {cli_store.url.partition('?')[0]} --tenant ac") == ["acme"]


def test_a_tab_does_not_wait_for_a_store_that_does_not_answer(
    program_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def answer_late(*_: object) -> set[str]:
        answered.wait(PATIENCE)
        return {"late"}

    monkeypatch.setattr("windlass.cli.parse.complete.WAIT", 0.0)
    monkeypatch.setattr("windlass.cli.parse.store_option.call_store", answer_late)
    command = cli.commands["worker"]
    queue = next(param for param in command.params if param.name == "queues")

    offered = queue.shell_complete(click.Context(command), "")
    answered.set()

    assert offered == []


def test_a_tab_is_quiet_without_a_store(program_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        hanging = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        for url in (hanging, "postgresql://127.0.0.1:1/x", "sqlite:///none.db", "nonsense"):
            assert complete("windlass jobs queue:", WINDLASS_URL=url) == []
    assert not (program_dir / "none.db").exists()


def test_nothing_heavy_is_imported_for_help(program_dir: Path) -> None:
    code = (
        "import sys, windlass.cli.main; sys.exit(any(name in sys.modules for name in ('rich', 'asyncpg', 'sqlite3')))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
