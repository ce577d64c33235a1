"""`windlass` in a shell: closed pipes, interrupts, completion, and a quick start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from windlass.cli.main import cli

from .cli_store import CliStore
from .conftest import Start


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [("windlass que", "queues"), ("windlass jobs re", "replay"), ("windlass jobs list state:de", "state:dead")],
)
def test_the_script_completes_commands_and_filters(program_dir: Path, words: str, expected: str) -> None:
    environment = {"_WINDLASS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}

    output = subprocess.run(
        [sys.executable, "-m", "windlass"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"plain,{expected}\n" in output.stdout


def test_nothing_heavy_is_imported_for_help(program_dir: Path) -> None:
    code = (
        "import sys, windlass.cli.main; sys.exit(any(name in sys.modules for name in ('rich', 'asyncpg', 'sqlite3')))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
