"""The commands as click sees them: help, versions, migrations, and errors without tracebacks."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from windlass.cli.main import cli
from windlass.cli.parse.program_argument import guess
from windlass.errors import ProgramError
from windlass.store.migrate import Migration, migrations, newest

COMMANDS = ["dev", "run", "worker", "migrate"]


def invoke(*arguments: str, **environment: str | None) -> Result:
    return CliRunner(env=environment).invoke(cli, arguments, prog_name="windlass")


def test_windlass_alone_prints_help_with_its_exit_codes(program_dir: Path) -> None:
    result = invoke()

    assert result.exit_code == 0
    assert all(command in result.output for command in COMMANDS)
    assert "Exit codes:" in result.output
    assert "124  run: the time given by --timeout is up" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(program_dir: Path, command: str) -> None:
    short, long = invoke(command, "-h"), invoke(command, "--help")

    assert short.exit_code == 0
    assert short.output == long.output
    assert short.output.startswith(f"Usage: windlass {command}")
    assert "lifeline" not in short.output


def test_the_version_is_printed() -> None:
    from windlass import __version__

    assert invoke("--version").output == f"windlass {__version__}\n"


def test_importing_windlass_does_not_import_the_command_line() -> None:
    code = "import sys, windlass; sys.exit('click' in sys.modules or 'windlass.cli' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_migrate_applies_once_and_says_what_it_did(program_dir: Path) -> None:
    first, second = invoke("migrate"), invoke("migrate")

    assert "applied 0001 windlass\n" in first.output
    assert second.output == "schema is up to date: sqlite:///windlass.db\n"
    assert (first.exit_code, second.exit_code) == (0, 0)


def test_migrate_check_touches_nothing_and_tells_by_its_exit_code(program_dir: Path) -> None:
    before = invoke("migrate", "--check")
    assert before.exit_code == 1
    assert "missing 0001 windlass" in before.output
    assert not (program_dir / "windlass.db").exists()

    invoke("migrate")

    assert invoke("migrate", "--check").exit_code == 0


def test_migrate_check_names_workers_that_it_would_leave_two_versions_behind(
    program_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("migrate")
    with closing(sqlite3.connect(program_dir / "windlass.db")) as file, file:
        file.execute(
            "INSERT INTO windlass_workers (id, name, started_at, alive_until, concurrency, types, schema_number)"
            " VALUES (?, 'ship:7', 0, 1 << 60, 1, '[]', ?)",
            (str(uuid4()), newest("sqlite")),
        )
    steps = migrations("sqlite")
    later = [Migration(number=steps[-1].number + n, name="later", sql="SELECT 1;") for n in (1, 2)]
    monkeypatch.setattr("windlass.store.migrate.migrations", lambda _: (*steps, *later))

    check, applied = invoke("migrate", "--check"), invoke("migrate")

    assert (check.exit_code, "ship:7" in check.stderr, "workers lists them" in check.stderr) == (3, True, True)
    assert json.loads(invoke("migrate", "--check", "--json").stdout)["outdated_workers"] == [
        f"ship:7 (knows {steps[-1].number})"
    ]
    assert (applied.exit_code, "nothing was changed" in applied.stderr) == (2, True)

    with closing(sqlite3.connect(program_dir / "windlass.db")) as file, file:
        file.execute("DELETE FROM windlass_workers")
    without_workers = invoke("migrate", "--check")
    assert (without_workers.exit_code, "first replace or stop producers" in without_workers.stderr) == (1, True)


def test_migrate_sql_prints_what_is_missing_and_touches_nothing(program_dir: Path) -> None:
    missing = invoke("migrate", "--sql")
    assert missing.exit_code == 0
    assert "CREATE TABLE windlass_jobs" in missing.output
    assert not (program_dir / "windlass.db").exists()

    invoke("migrate")

    assert invoke("migrate", "--sql").output == ""


def test_migrate_takes_its_database_from_url_then_target_then_environment(program_dir: Path) -> None:
    (program_dir / "own.py").write_text("from windlass import Windlass\napp = Windlass('sqlite:///own.db')\n")

    invoke("migrate", "--url", "sqlite:///given.db", WINDLASS_URL="sqlite:///environment.db")
    invoke("migrate", "own.py", WINDLASS_URL="sqlite:///environment.db")
    assert {file.name for file in program_dir.glob("*.db")} == {"given.db", "own.db"}

    invoke("migrate", WINDLASS_URL="sqlite:///environment.db")
    assert (program_dir / "environment.db").exists()
    assert invoke("migrate", "own.py", "--url", "sqlite:///given.db").exit_code == 2


def test_a_password_is_never_printed(program_dir: Path) -> None:
    result = invoke("migrate", "--url", "postgresql://ann:hunter2@127.0.0.1:1/nowhere")

    assert result.exit_code == 2
    assert result.output.startswith("windlass: ")
    assert "hunter2" not in result.output


def test_an_error_of_ours_is_one_line_and_exit_2(program_dir: Path) -> None:
    result = invoke("migrate", "--url", "mysql://ann:hunter2@host/db")

    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert result.output.startswith("windlass: url (flag): mysql:// is not a store Windlass knows")


def test_an_error_shows_its_traceback_only_when_asked(program_dir: Path) -> None:
    quiet, loud = invoke("worker", "nosuch.py"), invoke("worker", "nosuch.py", WINDLASS_DEBUG="1")

    assert "Traceback" not in quiet.output
    assert "windlass: nosuch.py does not exist" in quiet.output
    assert "Traceback" in loud.output
    assert (quiet.exit_code, loud.exit_code) == (2, 2)


def test_an_error_that_quotes_terminal_codes_shows_them_as_text(program_dir: Path) -> None:
    (program_dir / "evil.py").write_text("raise ValueError('\\x1b[2J \\u202e')")

    result = invoke("worker", "evil.py")

    assert "\\x1b[2J \\u202e" in result.output
    assert "\x1b" not in result.output


def test_a_closed_pipe_ends_quietly(program_dir: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    ended = subprocess.run(
        [sys.executable, "-m", "windlass", "migrate", "--sql"],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=program_dir,
        check=False,
    )
    os.close(writer)

    assert ended.stderr == b""


def test_dev_finds_the_only_file_that_makes_an_app(program_dir: Path) -> None:
    (program_dir / "helper.py").write_text("from windlass import Windlass\n")

    assert guess(program_dir) == "app.py"


def test_dev_prefers_a_well_known_name_and_refuses_to_choose_otherwise(program_dir: Path) -> None:
    (program_dir / "jobs.py").write_text("import windlass\njobs: windlass.Windlass = windlass.Windlass()\n")
    assert guess(program_dir) == "app.py"

    (program_dir / "app.py").rename(program_dir / "other.py")
    with pytest.raises(ProgramError, match=r"jobs\.py and other\.py make apps; .* windlass dev jobs\.py"):
        guess(program_dir)


def test_dev_without_a_program_says_the_command(program_dir: Path) -> None:
    (program_dir / "app.py").unlink()

    result = invoke("dev")

    assert result.exit_code == 2
    assert "windlass dev path/to/app.py" in result.output
