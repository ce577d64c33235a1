"""`windlass queues`, `workers`, `config` and `enqueue`, and the promises of `--json` for all commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from windlass.cli.main import cli
from windlass.config import names
from windlass.model.state import Verb

from .cli_store import CliStore
from .conftest import Start, Windlass


def invoke(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, arguments, prog_name="windlass")


# Queues and workers


def test_a_queue_is_shown_with_its_states_its_lag_and_its_workers(cli_store: CliStore) -> None:
    worker = cli_store.register_worker(queues=("mail",))
    cli_store.fail_job(worker=worker, queue="mail")
    cli_store.fail_job(worker=worker, queue="mail", verb=Verb.BURY)
    cli_store.enqueue(2, queue="mail")

    (queue,) = cli_store.run_json("queues")["queues"]

    assert 0 <= queue.pop("lag") < 60
    jobs = {"queued": 2, "due": 2, "running": 0, "failed": 1, "waiting": 0, "dead": 1}  # a failed one is due later
    assert queue == {"queue": "mail", **jobs, "workers": 1, "gate": "open", "counted": 10_000}
    assert cli_store.run("queues").stdout.startswith("mail\t2\t0\t1\t0\t1\t")
    assert cli_store.run("queues").stdout.endswith("\t1\topen\n")
    assert cli_store.run("queues").stderr == ""


def test_a_queue_with_due_jobs_and_no_live_worker_is_loud(cli_store: CliStore) -> None:
    cli_store.register_worker(queues=("report",))
    cli_store.register_worker(queues=("mail",), lease=0.0)
    cli_store.enqueue(queue="mail")
    cli_store.enqueue(queue="report")
    cli_store.enqueue(queue="later", delay=3600.0)

    result = cli_store.run("queues", "-a", "app.py", "--url", cli_store.url)

    assert "no live worker serves mail: jobs are due since" in result.stderr
    assert "windlass worker app.py --queue mail" in result.stderr
    assert "report" not in result.stderr
    assert "later" not in result.stderr


def test_the_loud_part_comes_first_on_a_terminal(file_cli_store: CliStore) -> None:
    file_cli_store.enqueue(queue="mail")

    seen, _ = file_cli_store.run_in_terminal("queues", NO_COLOR="1")

    assert seen.splitlines()[0].startswith("no live worker serves mail")
    assert seen.splitlines()[2] == "QUEUE  QUEUED  RUNNING  FAILED  WAITING  DEAD  LAG  WORKERS"


def test_a_worker_is_shown_with_its_state(cli_store: CliStore) -> None:
    busy, silent = (
        cli_store.register_worker(name="ship:1"),
        cli_store.register_worker(name="ship:2", queues=("mail", "sms"), lease=0.0),
    )
    cli_store.enqueue()
    cli_store.claim_one(busy)

    rows = {row["id"]: row for row in cli_store.run_json("workers")["workers"]}

    assert (rows[str(busy)]["state"], rows[str(busy)]["running"], rows[str(busy)]["queues"]) == ("busy", 1, None)
    assert (rows[str(silent)]["state"], rows[str(silent)]["queues"]) == ("silent", ["mail", "sms"])
    assert "ship:2\tsilent\t0/10\tmail, sms\t1\t" in cli_store.run("workers").stdout


def test_an_empty_store_says_so_and_what_to_do(file_cli_store: CliStore) -> None:
    assert "no job is queued" in file_cli_store.run("queues").stderr
    assert "start one: windlass worker app.py" in file_cli_store.run("workers").stderr
    assert "enqueue one: windlass enqueue" in file_cli_store.run("jobs").stderr
    assert file_cli_store.run_json("queues") == {"queues": []}
    assert file_cli_store.run_json("workers") == {"workers": []}
    assert file_cli_store.run_json("jobs", "list") == {"filter": "", "jobs": [], "next": None}


# Settings


def test_each_setting_is_shown_with_its_value_origin_and_variable(program_dir: Path) -> None:
    (program_dir / "windlass.toml").write_text('sweep = "7s"\n')
    (program_dir / "pyproject.toml").write_text('[tool.windlass]\npoll = "3s"\nsweep = "9s"\n')
    (program_dir / "own.py").write_text("from windlass import Windlass\napp = Windlass(concurrency=3, pace='polite')\n")

    result = invoke("config", "own.py", "--json", WINDLASS_GRACE="90s", WINDLASS_SWEEP="")
    output = {item["name"]: (item["value"], item["from"]) for item in json.loads(result.stdout)["settings"]}

    assert list(output) == list(names())
    assert output["concurrency"] == (3, "argument")
    assert output["grace"] == (90.0, "environment")
    assert output["sweep"] == (7.0, "windlass.toml")
    assert output["poll"] == (3.0, "pyproject.toml")
    assert output["lease"] == (600.0, "pace polite")
    assert output["max_crashes"] == (3, "default")


def test_settings_are_printed_as_users_write_them_and_passwords_are_not(program_dir: Path) -> None:
    url = "postgresql://ann:hunter2@host/db?password=hunter2"

    plain = invoke("config", "--url", url, WINDLASS_MEMORY="512M", WINDLASS_DIRECT_URL=url).stdout
    document = invoke("config", "--url", url, "--json").stdout

    assert "history\t7d\tdefault\tWINDLASS_HISTORY\t" in plain
    assert "memory\t512M\tenvironment" in plain
    assert "url\tpostgresql://ann:…@host/db\tflag\tWINDLASS_URL" in plain
    assert "hunter2" not in plain + document


def test_a_flag_comes_before_the_environment(program_dir: Path) -> None:
    output = invoke("config", "--url", "sqlite:///flag.db", WINDLASS_URL="sqlite:///environment.db").stdout

    assert "url\tsqlite:///flag.db\tflag" in output


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("windlass.toml", 'sweeep = "7s"', "did you mean 'sweep'?"),
        ("windlass.toml", "sweep = [", "windlass.toml cannot be read"),
        ("pyproject.toml", '[tool.windlass]\nlease = "long"', "is not a duration"),
    ],
)
def test_a_file_with_a_typing_error_is_one_line_and_exit_2(
    program_dir: Path, file: str, text: str, message: str
) -> None:
    (program_dir / file).write_text(text)

    result = invoke("config")

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


# Enqueue


def test_a_job_is_enqueued_by_its_function_its_type_or_a_document(program_dir: Path) -> None:
    invoke("migrate")

    ids = [
        invoke("enqueue", "app:add", "2", "-3").stdout,
        invoke("enqueue", "-a", "app.py", "add", "a=2", "b=-3").stdout,
        invoke("enqueue", "add", "2", "-3", WINDLASS_APP="app.py").stdout,
        invoke("enqueue", "app.py", "--type", "add", "--input", '{"a": 2, "b": -3}').stdout,
        invoke("enqueue", "--type", "add", "--input", '{"b": -3, "a": 2}', WINDLASS_APP="app.py").stdout,
        CliRunner().invoke(cli, ["enqueue", "app.py", "--type", "add", "--input", "-"], input='{"a":2,"b":-3}').stdout,
    ]

    for id in ids:
        assert json.loads(invoke("jobs", "show", id.strip(), "--json").stdout)["input"] == {"a": 2, "b": -3}


def test_a_pipeline_is_enqueued_by_its_variable_or_its_name(program_dir: Path) -> None:
    (program_dir / "line.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass()\n"
        "@app.job\n"
        "def cut(film: str) -> None: ...\n"
        "@app.job\n"
        "def show(film: str) -> None: ...\n"
        "studio = app.pipeline('studio line', cut, show)\n"
    )
    invoke("migrate")

    by_variable = json.loads(invoke("enqueue", "line:studio", "western", "--json").stdout)
    by_name = json.loads(invoke("enqueue", "-a", "line.py", "studio line", "film=western", "--json").stdout)

    for job in (by_variable, by_name):
        assert (job["pipeline"], job["phase"], job["type"], job["input"]) == (
            "studio line",
            "cut",
            "cut",
            {"film": "western"},
        )


def test_options_of_an_enqueue_are_the_jobs_own(program_dir: Path) -> None:
    invoke("migrate")
    options = shlex.split("--queue q --priority -5 --delay 1h --tenant t --key -1k --max-attempts 9")

    job = json.loads(invoke("enqueue", "app:add", "1", "2", *options, "--json").stdout)

    assert {
        "queue": "q",
        "priority": -5,
        "tenant": "t",
        "key": "-1k",
        "max_attempts": 9,
        "state": "queued",
    }.items() <= (job.items())
    assert job["run_at"] > job["created_at"]


def test_keys_of_limits_are_given_by_their_names(program_dir: Path) -> None:
    (program_dir / "crawler.py").write_text(
        "from windlass import Windlass, limit\n"
        "app = Windlass()\n"
        "@app.job(limits=[limit('domain', 2), limit('tenant', 20)])\n"
        "def fetch(domain: str) -> None: ...\n"
    )
    invoke("migrate")
    given = ("--limit", "domain=a.org", "--limit", "tenant=b=c")

    def limits(*arguments: str) -> object:
        id = invoke(*arguments).stdout.strip()
        return json.loads(invoke("jobs", "show", id, "--json").stdout)["limits"]

    assert limits("enqueue", "crawler:fetch", "x.org") == ["domain:x.org", "tenant:default"]
    assert limits("enqueue", "crawler:fetch", "x.org", *given) == ["domain:a.org", "tenant:b=c"]
    assert limits("run", "crawler:fetch", "x.org", *given, "--no-wait") == ["domain:a.org", "tenant:b=c"]
    for word, message in {
        "domian=x": "has no limit 'domian'; did you mean 'domain'?",
        "domain": "'domain': write it like domain=example.org",
        "domain=": "limits: the value of 'domain' is empty",
    }.items():
        for command in ("enqueue", "run"):
            refused = invoke(command, "crawler:fetch", "x.org", "--limit", word)
            assert (refused.exit_code, message in refused.stderr) == (2, True), refused.output
    twice = invoke("enqueue", "crawler:fetch", "x.org", "--limit", "domain=a", "--limit", "domain=b")
    assert "domain= is given twice" in twice.stderr
    assert "no limit 'domain'; it has none" in invoke("enqueue", "app:add", "1", "2", "--limit", "domain=a").stderr


def test_a_repeated_enqueue_prints_the_job_that_is_there_and_says_so(program_dir: Path) -> None:
    invoke("migrate")
    keyed, requested = ("--key", "order-7"), ("--idempotency-key", "request-7")

    first, second = (invoke("enqueue", "app:add", "1", "2", *keyed) for _ in range(2))
    third, fourth = (json.loads(invoke("enqueue", "app:add", "3", "4", *requested, "--json").stdout) for _ in range(2))
    other = invoke("enqueue", "app:add", "3", "5", *requested)

    assert first.stdout == second.stdout
    assert (first.stderr, second.stderr) == ("", "windlass: nothing was enqueued; that job has the key already\n")
    assert (third["existing"], fourth["existing"], third["id"]) == (False, True, fourth["id"])
    assert other.exit_code == 2
    assert "the idempotency key 'request-7' was used for job" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a job: windlass enqueue app:add 2 3"),
        (("app.py",), "say which job to run, for example app.py:add"),
        (("app:ad", "1", "2"), "did you mean 'add'"),
        (("app:add", "one", "2"), "$.a: Expected `int`, got `str`"),
        (("app.py", "--type", "ad"), "did you mean 'add'?"),
        (("--type", "add"), "name its program"),
        (("app.py", "--type", "add", "--input", "[1]"), "--input is an array"),
        (("app.py", "--type", "add", "--input", "{a"), "--input is not JSON"),
        (("app.py", "--type", "add", "--input", "[" * 5_000), "--input is not JSON"),
        (("app.py", "--type", "add", "--input", '{"a": 1, "c": 2}'), "unexpected keyword argument 'c'"),
        (("app:add", "1", "2", "--priority", "99999"), "is not a whole number from -32768"),
        (("app:add", "1", "2", "--queue", "a\nb"), "queue contains a control character"),
        (("app:add", "1", "2", "--delay", "soon"), "is not a duration"),
        (("app:add", "1", "2", "--input", "{}"), "--input holds all arguments"),
    ],
)
def test_a_wrong_enqueue_is_reported_and_writes_nothing(
    program_dir: Path, arguments: tuple[str, ...], message: str
) -> None:
    invoke("migrate")

    result = invoke("enqueue", *arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert json.loads(invoke("jobs", "list", "--json").stdout)["jobs"] == []


def test_without_a_schema_an_enqueue_names_the_command(program_dir: Path) -> None:
    assert "run: windlass migrate app.py (or: windlass dev app.py)" in invoke("enqueue", "app.py:add", "1", "2").stderr


# --json


def test_run_prints_the_whole_job(windlass: Windlass, start: Start) -> None:
    windlass("migrate")
    start("worker", "app.py").expect("worker .* started")

    added, failed = windlass("run", "app:add", "2", "3", "--json"), windlass("run", "app:fail", "--json")
    waited = windlass("run", "app:hold", "--timeout", "10ms", "--json")

    assert (json.loads(added.stdout)["output"], added.returncode) == (5, 0)
    assert (json.loads(failed.stdout)["error"]["message"], failed.returncode) == ("out of rope", 1)
    assert (json.loads(waited.stdout)["type"], waited.returncode) == ("hold", 124)


def test_migrate_tells_what_it_did(program_dir: Path) -> None:
    step = {"number": 1, "name": "windlass"}

    checked = invoke("migrate", "--check", "--json")
    applied, again = invoke("migrate", "--json"), invoke("migrate", "--json")

    assert checked.exit_code == 1
    assert step in json.loads(checked.stdout)["missing"]
    assert step in json.loads(applied.stdout)["applied"]
    assert json.loads(again.stdout) == {"database": "sqlite:///windlass.db", "applied": [], "missing": []}


COMMANDS = [("jobs", "list"), ("queues",), ("workers",), ("audit",), ("config",), ("doctor",), ("migrate",)]


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_line_in_a_pipe_and_an_error_leaves_stdout_empty(file_cli_store: CliStore, command: Any) -> None:
    good = file_cli_store.run(*command, "--json")
    wrong = invoke(*command, "--json", "--url", "mysql://nowhere")

    assert good.stdout.count("\n") == 1
    json.loads(good.stdout)
    if command != ("config",):
        assert (wrong.exit_code, wrong.stdout) == (2, "")
        assert wrong.stderr.startswith("windlass: ")
