"""What a newcomer types, and the answer: what happened, and the line to write."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from windlass.cli.main import cli
from windlass.cli.parse.mistakes import ELSEWHERE, EXAMPLES, OPTIONS
from windlass.cli.process.child import COMMAND
from windlass.cli.show.output import name_command
from windlass.model.state import State

from .cli_store import CliStore
from .conftest import APP, Start, Windlass

MISTAKES = {
    # Commands of other tools
    "purge": "there is no command 'purge'; to cancel what has not ended: windlass jobs cancel --all",
    "inspect": "to look at jobs: windlass jobs; at queues: windlass queues; at workers: windlass workers",
    "list": "to look at jobs: windlass jobs",
    "stats": "at workers: windlass workers",
    "start": "to run jobs: windlass worker app.py; while you write: windlass dev app.py",
    "stop": "Ctrl-C or SIGTERM stops a worker; to start no more jobs: windlass gates pause --all",
    "beat": "every worker fires the schedules: windlass worker app.py",
    "call app.add": "to enqueue a job: windlass enqueue app:add 2 3",
    "flower": "there is no web page; windlass queues",
    "init": "to make the tables or bring them up to date: windlass migrate",
    "ping": "windlass doctor",
    "retry 123456": "it is a command of jobs: windlass jobs retry ID",
    "requeue 123456": "to start dead jobs over: windlass jobs replay ID",
    "version": "windlass --version prints it",
    "help": "windlass --help lists the commands",
    "jobs delete 123456": "to remove dead jobs: windlass jobs discard ID; to end others: windlass jobs cancel ID",
    "jobs failed": "that is a state; write the term: windlass jobs state:failed",
    "jobs get 123456": "to see one job: windlass jobs show ID",
    "gates close --queue mail": "windlass gates pause --queue mail",
    "gates open --queue mail": "to start its jobs again: windlass gates resume --queue mail",
    "gates drain --queue mail": "windlass gates pause --queue mail --claimed finish",
    "schedules disable nightly": "to stop firing: windlass schedules pause NAME",
    "schedules run nightly": "to enqueue its job now: windlass schedules fire NAME",
    "tenants set acme 3": "windlass tenants weigh acme 3",
    # Options of other tools
    "-A app worker": "-a names the program, after the command: windlass worker -a app\n",
    "worker -A app": "No such option '-A'. -a names the program, after the command: windlass worker -a app\n",
    "jobs -A app": "windlass jobs -a app\n",
    "worker app.py -Q mail": "No such option '-Q': the queues: --queue mail --queue reports",
    "worker app.py -c 4": "the number of jobs at a time: --concurrency 10",
    "worker app.py --loglevel info": "write it --log-level INFO, or -l INFO",
    "dev app.py --processes 3": "`dev` runs everything in one process; windlass worker app.py takes this option",
    "enqueue app:add 2 3 --countdown 5": "windlass enqueue app:add 2 3 --delay 5m",
    "run app:add 2 3 --wait": "`run` waits; --timeout 30s is how long",
    "migrate --dry-run": "--check lists what is missing, and --sql prints it",
    "jobs --state dead": "a filter is made of terms: windlass jobs state:dead",
    "doctor --fix": "the doctor only reads",
    # Misspelt and misplaced words
    "wroker app.py": "there is no command 'wroker'; did you mean: windlass worker app.py",
    "job show 123456": "did you mean: windlass jobs show 123456",
    "gates puase --queue mail": "did you mean: windlass gates pause --queue mail",
    "foo": "there is no command 'foo'; there are: dev, run, enqueue, worker, relay, web, jobs",
    "app.py": "there is no command 'app.py'; did you mean: windlass dev app.py",
    "app:add 2 3": "did you mean: windlass run app:add 2 3",
    "state:dead": "did you mean: windlass jobs state:dead",
    "0192f0c4": "did you mean: windlass jobs show 0192f0c4",
    "jobs mail": "a filter is made of terms such as queue:mail or type:mail; see: windlass jobs --help",
    "jobs state=dead": "'state=dead' is not a term; write a colon: state:dead",
    "jobs state:faild": "there is no state 'faild'; did you mean 'failed'?",
    "jobs quue:mail": "there is no field 'quue'; did you mean 'queue'?",
    "jobs age:": "a shell takes > and < for itself; quote the term: 'age:>1h', or write age:1h..",
    "schedules pause nigtly": "there is no schedule 'nigtly'; did you mean 'nightly'?",
    "audit --action JOB_DAED": "did you mean: windlass audit --action JOB_DEAD",
    # Missing and superfluous arguments
    "jobs show": "Missing argument 'ID'. Write it like: windlass jobs show 9f3c21ab",
    "jobs signal 123456": "Missing argument 'NAME'. Write it like: windlass jobs signal 9f3c21ab approved",
    "jobs cancel": "give ids, a filter, or --all, for example: windlass jobs cancel queue:mail age:1h..",
    "limits hold wikidata": "Missing argument 'TIME'. Write it like: windlass limits hold wikidata 2m",
    "schedules fire": "Missing argument 'NAME'. Write it like: windlass schedules fire nightly",
    "tenants weigh acme": "Missing argument 'WEIGHT'. Write it like: windlass tenants weigh acme 3",
    "budgets set 500": "for example: windlass budgets set --tenant acme 500 --per day",
    "gates pause mail": "Got unexpected extra argument (mail). Write it like: windlass gates pause --queue mail",
    "queues mail": "the jobs of one: windlass jobs queue:mail",
    "audit 123456": "Write it like: windlass audit --job 9f3c21ab",
    "worker app.py 4": "Write it like: windlass worker app.py --processes 4",
    "worker app.py -a other.py": "app.py and -a other.py both name a program; give one of them",
    # Jobs and programs
    "jobs show 12": "'12' is not a job id: expected a UUID, or 6 or more digits",
    "jobs show 123456": "there is no job 123456: it never existed, was discarded, or has left the history",
    "run": "name a job: windlass run app:add 2 3",
    "run add 2 3": "a job is named with its program: windlass run app:add",
    "run app.add 2 3": "app is a file: did you mean app:add?",
    "run app add 2 3": "app: say which job to run, for example app:add",
    "run app:ad 2 3": "app has no job 'ad'; did you mean 'add'?",
    "run app:add 2": "add() missing required argument 'b'; write it like: windlass run app:add a=… b=…",
    "enqueue app:add 2 3 delay=5s": "add() has no argument 'delay'; write it like: windlass enqueue app:add a=… b=… "
    "--delay …",
    "enqueue app:add 2 3 4": "takes 2 arguments but 3 were given; write it like: windlass enqueue app:add a=… b=…",
    "enqueue --type add 2 3": "--type add: name its program first: windlass enqueue app.py --type add",
    "enqueue app.py --type ad": "no job type 'ad' in this program; did you mean 'add'?",
    "worker app:add": "app:add is a job and no app; its program is app; to run one such job: windlass run app:add",
    "worker nosuch.py": "nosuch.py does not exist in {directory}; there are: app.py",
    "worker nosuch": "neither below {directory} nor installed; go to its directory, or name its file",
    "worker app.py --type ad": "no job type 'ad' in this program; did you mean 'add'?",
}


@pytest.fixture
def place(file_cli_store: CliStore, program_dir: Path) -> CliStore:
    """A program, its store, and a schedule."""
    (program_dir / "app.py").write_text(f"{APP}\napp.schedule('nightly', add.call(1, 2), cron='0 3 * * *')\n")
    return file_cli_store


def invoke(place: CliStore, line: str, **environment: str) -> Result:
    runner = CliRunner(env={"WINDLASS_URL": place.url, **environment})
    return runner.invoke(cli, shlex.split(line), prog_name="windlass")


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(place: CliStore, program_dir: Path, start: Start, line: str) -> None:
    if line.startswith("schedules pause"):  # a worker writes the schedules of its program
        worker = start("worker", "app.py", WINDLASS_URL=place.url)
        worker.expect("started as")
        worker.signal(signal.SIGTERM)
        worker.wait()

    result = invoke(place, line)

    assert MISTAKES[line].format(directory=program_dir) in result.output
    assert result.exit_code == (0 if line.startswith("audit --action") else 2)
    assert "Traceback" not in result.output


def test_every_command_in_an_answer_is_a_command() -> None:
    answers = [
        *EXAMPLES.values(),
        *OPTIONS.values(),
        *(each for group in ELSEWHERE.values() for each in group.values()),
    ]
    commands = {found for text in answers for found in re.findall(r"windlass ([a-z]+)", text)}

    assert len(commands) > 10
    assert commands <= set(cli.commands)


def test_no_word_from_elsewhere_hides_a_command() -> None:
    for group, words in ELSEWHERE.items():
        commands = cli.commands if group == "cli" else cli.commands[group].commands  # type: ignore[attr-defined]
        assert set(words) & set(commands) == set()
    assert {state.value for state in State} <= set(ELSEWHERE["jobs"])


# Names


def test_a_name_that_no_job_has_gets_a_suggestion(cli_store: CliStore) -> None:
    cli_store.enqueue(queue="mail", tenant="acme")

    assert "has the queue 'mial'; did you mean 'mail'?" in cli_store.run("jobs", "queue:mial").stderr
    assert "has the type 'sned'; did you mean 'send'?" in cli_store.run("jobs", "type:sned").stderr
    assert "has the tenant 'acne'; did you mean 'acme'?" in cli_store.run("jobs", "cancel", "tenant:acne").stderr
    assert "has the queue" not in cli_store.run("jobs", "queue:mail", "type:sned").stderr
    assert "did you mean" not in cli_store.run("jobs", "-queue:mial", "state:dead").stderr


def test_an_enqueue_to_a_queue_that_may_be_misspelt_is_made_with_a_remark(place: CliStore) -> None:
    result = invoke(place, "enqueue app:add 2 3 --queue defualt")

    assert result.exit_code == 0
    assert result.stderr == "windlass: no queue 'defualt' has been seen yet; did you mean 'default'?\n"


def test_a_worker_warns_once_of_a_queue_that_no_type_uses(place: CliStore, start: Start) -> None:
    running = start("worker", "app.py", "--queue", "defualt", "--processes", "2", WINDLASS_URL=place.url)

    running.expect("started as")  # of either process: the one that warns does so before it starts
    running.expect("started as")
    running.signal(signal.SIGTERM)

    assert running.wait() == 0
    assert running.output.count("no job type of app.py uses the queue 'defualt'; did you mean 'default'?") == 1


# Directories and programs


def test_without_a_file_it_says_which_directory_was_searched(program_dir: Path) -> None:
    result = CliRunner().invoke(cli, ["jobs"], prog_name="windlass")

    assert result.exit_code == 2
    assert result.stderr == (
        f"windlass: there is no file windlass.db in {program_dir}, and sqlite:///windlass.db means this directory; "
        "go to the directory of your program, or name its file: --url sqlite:////path/to/windlass.db; "
        "to make a new one here: windlass migrate\n"
    )
    assert not (program_dir / "windlass.db").exists()


@pytest.mark.parametrize("command", ["dev", "worker"])
def test_dev_and_worker_find_their_program_by_one_rule(program_dir: Path, command: str) -> None:
    (program_dir / "app.py").rename(program_dir / "one.py")
    (program_dir / "two.py").write_text(APP)

    both = CliRunner().invoke(cli, [command], prog_name="windlass").stderr
    (program_dir / "one.py").unlink()
    (program_dir / "two.py").unlink()
    none = CliRunner().invoke(cli, [command], prog_name="windlass").stderr

    assert both == f"windlass: one.py and two.py make apps; name one, for example: windlass {command} one.py\n"
    assert f"no Python file in {program_dir} makes a Windlass app; go to the directory of your program" in none
    assert f"windlass {command} path/to/app.py" in none


@pytest.mark.parametrize("words", [(), ("-a", "app.py")])
def test_a_worker_runs_the_program_of_the_directory(windlass: Windlass, start: Start, words: tuple[str, ...]) -> None:
    windlass("migrate")
    running = start("worker", *words)

    running.expect("started as")
    running.signal(signal.SIGTERM)

    assert running.wait() == 0


# The name of the command


def test_a_database_of_the_same_name_is_no_command() -> None:
    with click.Context(click.Command("enqueue"), info_name=".venv/bin/windlass"):
        said = name_command("postgresql://h/windlass has schema 9; run: windlass migrate")

    assert said == "postgresql://h/windlass has schema 9; run: .venv/bin/windlass migrate"


def test_a_hint_is_a_line_that_the_user_can_type(program_dir: Path) -> None:
    script = Path(sys.executable).parent / "windlass"
    plain = {name: value for name, value in os.environ.items() if name != COMMAND}
    without = {**plain, "PATH": "/usr/bin:/bin"}

    def hint(*command: str, **environment: str) -> str:
        ended = subprocess.run(
            [*command, "enqueue", "app:add", "1", "2"], env={**without, **environment}, capture_output=True, check=False
        )
        return ended.stderr.decode().partition("; run: ")[2]

    assert hint(str(script)) == f"{script} migrate app (or: {script} dev app)\n"
    assert hint(str(script), PATH=f"{script.parent}:/bin") == "windlass migrate app (or: windlass dev app)\n"
    python = f"{sys.executable} -m windlass"
    assert hint(sys.executable, "-m", "windlass") == f"{python} migrate app (or: {python} dev app)\n"


def test_in_a_framework_a_hint_names_no_program(place: CliStore) -> None:
    runner = CliRunner(env={"WINDLASS_URL": place.url})
    result = runner.invoke(cli, ["start"], prog_name="manage.py windlass")

    assert "to run jobs: manage.py windlass worker; while you write: manage.py windlass dev\n" in result.output


def test_a_child_prints_the_command_of_its_parent(program_dir: Path, start: Start) -> None:
    running = start("worker", "app.py", "--processes", "2", **{COMMAND: "venv/bin/windlass"})

    running.expect("run: venv/bin/windlass migrate app.py")
    running.signal(signal.SIGTERM)
    running.wait()


def test_a_missing_driver_is_named_by_a_package_that_can_be_installed(
    place: CliStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    result = invoke(place, "migrate --url postgresql://localhost/shop")

    assert result.stderr == ("windlass: PostgreSQL needs asyncpg, which is not installed; run: pip install asyncpg\n")
