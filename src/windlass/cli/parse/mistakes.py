"""What a newcomer types instead of a command, and the line to write.

Users of other job queues know other names: each answer says what Windlass calls the same thing.
"""

from __future__ import annotations

import difflib
import re
import shlex
from itertools import pairwise

import click
from click.exceptions import NoSuchOption

from windlass.cli.show.output import name_command

PROGRAM_OPTIONS = ("-A", "-a", "--app")
TYPED = "windlass.typed"
"""The key of the words of the command line in the meta of click's context."""

START = "to run jobs: windlass worker app.py; while you write: windlass dev app.py"
STOP = "Ctrl-C or SIGTERM stops a worker; to start no more jobs: windlass gates pause --all"
LOOK = "to look at jobs: windlass jobs; at queues: windlass queues; at workers: windlass workers"
EMPTY = "to cancel what has not ended: windlass jobs cancel --all; to remove dead jobs: windlass jobs discard --all"
ENQUEUE = "to enqueue a job: windlass enqueue app:add 2 3; to wait for its result: windlass run app:add 2 3"
SCHEDULES = "every worker fires the schedules: windlass worker app.py; to look at them: windlass schedules"
MIGRATE = "to make the tables or bring them up to date: windlass migrate"
CHECK = "to check the database, the workers and the queues: windlass doctor"
GATES = "to pause or resume everything, a queue, a type or a tenant: windlass gates --help"
PAGE = "there is no web page; windlass queues, windlass workers and windlass jobs show the same in a terminal"
HISTORY = "to see what happened: windlass audit; to one job: windlass jobs show ID"

_COMMANDS: dict[str, str] = {
    **dict.fromkeys(("start", "up", "serve", "work", "process", "consumer", "consume", "rqworker"), START),
    **dict.fromkeys(("run_huey", "huey", "dramatiq", "celery", "rq", "multi", "runworker", "go", "server"), START),
    **dict.fromkeys(("stop", "down", "shutdown", "kill", "quit", "restart", "control"), STOP),
    **dict.fromkeys(("list", "ls", "inspect", "info", "stats", "ps", "active", "state"), LOOK),
    **dict.fromkeys(("task", "tasks", "report", "registered", "reserved", "scheduled", "result"), LOOK),
    **dict.fromkeys(("purge", "empty", "clear", "flush", "clean", "delete", "remove", "reset"), EMPTY),
    **dict.fromkeys(("call", "send", "submit", "push", "add", "delay", "apply", "apply_async", "create"), ENQUEUE),
    **dict.fromkeys(("beat", "scheduler", "cron", "rqscheduler", "periodic"), SCHEDULES),
    **dict.fromkeys(("init", "setup", "install", "upgrade", "db", "schema", "makemigrations", "createdb"), MIGRATE),
    **dict.fromkeys(("check", "healthcheck", "ping", "test", "diagnose"), CHECK),
    **dict.fromkeys(("pause", "open", "drain", "unpause", "suspend"), GATES),
    **dict.fromkeys(("flower", "dashboard", "ui", "admin", "monitor", "events"), PAGE),
    **dict.fromkeys(("logs", "log", "history", "tail"), HISTORY),
    **{
        verb: f"it is a command of jobs: windlass jobs {verb} ID, or with a filter: windlass jobs {verb} queue:mail"
        for verb in ("cancel", "retry", "replay", "discard", "resume")
    },
    **dict.fromkeys(("show", "signal"), "it is a command of jobs: windlass jobs show ID, windlass jobs signal ID NAME"),
    **dict.fromkeys(
        ("requeue", "rerun", "redo"),
        "to start dead jobs over: windlass jobs replay ID; a failed one: windlass jobs retry ID; with another input: "
        "windlass jobs rerun ID",
    ),
    **dict.fromkeys(("revoke", "abort"), "to cancel a job: windlass jobs cancel ID"),
    **dict.fromkeys(("fire", "forget"), "it is a command of schedules: windlass schedules --help"),
    **dict.fromkeys(("hold", "release"), "it is a command of limits: windlass limits --help"),
    **dict.fromkeys(("settings", "env", "conf"), "to see each setting and its origin: windlass config"),
    "help": "windlass --help lists the commands, windlass COMMAND --help describes one",
    "version": "windlass --version prints it",
}

_JOBS: dict[str, str] = {
    **dict.fromkeys(("ls", "all"), "windlass jobs lists them"),
    **dict.fromkeys(("get", "inspect", "info", "view", "result"), "to see one job: windlass jobs show ID"),
    **dict.fromkeys(
        ("delete", "remove", "rm", "purge", "clear"),
        "to remove dead jobs: windlass jobs discard ID; to end others: windlass jobs cancel ID",
    ),
    **dict.fromkeys(("stop", "kill", "abort", "revoke"), "to end a job: windlass jobs cancel ID"),
    **dict.fromkeys(
        ("requeue", "restart", "run"),
        "to start a dead job over: windlass jobs replay ID; to make a failed one due now: windlass jobs retry ID",
    ),
    **dict.fromkeys(("add", "enqueue", "create", "new"), "to enqueue a job: windlass enqueue app:add 2 3"),
    **{
        state: f"that is a state; write the term: windlass jobs state:{state}"
        for state in ("queued", "running", "failed", "waiting", "dead", "succeeded", "cancelled")
    },
}


_GATES: dict[str, str] = {
    **dict.fromkeys(
        ("close", "stop", "block", "disable"), "to start no more jobs of a queue: windlass gates pause --queue mail"
    ),
    **dict.fromkeys(
        ("open", "start", "unblock", "enable", "unpause"),
        "to start its jobs again: windlass gates resume --queue mail",
    ),
    "drain": "to let claimed jobs run and claim no more: windlass gates pause --queue mail --claimed finish",
}

_SCHEDULES: dict[str, str] = {
    **dict.fromkeys(("stop", "disable", "off"), "to stop firing: windlass schedules pause NAME"),
    **dict.fromkeys(("start", "enable", "on", "unpause"), "to fire again: windlass schedules resume NAME"),
    **dict.fromkeys(("run", "trigger", "now"), "to enqueue its job now: windlass schedules fire NAME"),
    **dict.fromkeys(
        ("delete", "remove", "rm"),
        "to stop it: windlass schedules pause NAME; if no program declares it any more: windlass schedules forget NAME",
    ),
    **dict.fromkeys(
        ("add", "create", "new"),
        'a program declares it: app.schedule("nightly", report.call(), '
        'cron="0 3 * * *"); its worker writes it to the database',
    ),
    **dict.fromkeys(("set", "change", "update"), "to change it: windlass schedules edit NAME --cron '0 3 * * *'"),
}

_TENANTS: dict[str, str] = {
    **dict.fromkeys(("set", "weight", "add", "edit"), "to set a tenant's weight: windlass tenants weigh acme 3"),
    "show": "windlass tenants lists them; the jobs of one: windlass jobs tenant:acme",
}

_TOKEN: dict[str, str] = {
    **dict.fromkeys(("add", "new", "make"), "to create a token: windlass token create ci --role operator"),
    **dict.fromkeys(("delete", "remove", "rm", "drop"), "to refuse a token from now on: windlass token revoke ci"),
    "show": "a secret is shown once, when it is created; windlass token lists the tokens without their secrets",
}

ELSEWHERE: dict[str, dict[str, str]] = {
    "cli": _COMMANDS,
    "jobs": _JOBS,
    "gates": _GATES,
    "schedules": _SCHEDULES,
    "tenants": _TENANTS,
    "token": _TOKEN,
}
"""By group: words that other tools use, and what to write."""

EXAMPLES = {
    "audit": "windlass audit --job 9f3c21ab",
    "budgets drop": "windlass budgets drop --tenant acme",
    "budgets set": "windlass budgets set --tenant acme 500 --per day",
    "completion": "windlass completion bash",
    "config": "windlass config app.py",
    "gates": "windlass gates {command} --queue mail",
    "jobs list": "windlass jobs state:dead queue:mail",
    "jobs show": "windlass jobs show 9f3c21ab",
    "jobs signal": "windlass jobs signal 9f3c21ab approved",
    "limits hold": "windlass limits hold wikidata 2m",
    "limits": "windlass limits {command} wikidata",
    "queues": "windlass queues, or the jobs of one: windlass jobs queue:mail",
    "schedules edit": "windlass schedules edit nightly --cron '0 3 * * *'",
    "schedules": "windlass schedules {command} nightly",
    "tenants weigh": "windlass tenants weigh acme 3",
    "token create": "windlass token create ci --role operator",
    "token revoke": "windlass token revoke ci",
    "worker": "windlass worker app.py --processes 4",
    "workers": "windlass workers; to start one: windlass worker app.py",
}
"""By command, or by group: a line that is right."""

OPTIONS = {
    **{
        ("jobs list", f"--{field}"): f"a filter is made of terms: windlass jobs {field}:{value}"
        for field, value in (
            ("state", "dead"),
            ("queue", "mail"),
            ("type", "send"),
            ("tenant", "acme"),
            ("id", "9f3c21ab"),
        )
    },
    **{
        (command, option): f"--delay starts the job later: windlass {command} app:add 2 3 --delay 5m"
        for command in ("enqueue", "run")
        for option in ("--eta", "--countdown", "--in", "--at", "--schedule")
    },
    **dict.fromkeys(
        (("dev", "--processes"), ("dev", "--queue"), ("dev", "--type")),
        "`dev` runs everything in one process; windlass worker app.py takes this option",
    ),
    ("jobs show", "--id"): "the id follows the command: windlass jobs show 9f3c21ab",
    ("migrate", "--dry-run"): "--check lists what is missing, and --sql prints it; neither changes anything",
    ("doctor", "--fix"): "the doctor only reads; each finding comes with the next command",
    ("run", "--wait"): "`run` waits; --timeout 30s is how long, and `windlass enqueue` does not wait",
    ("enqueue", "--wait"): "`windlass run` waits for the result",
    ("worker", "-c"): "the number of jobs at a time: --concurrency 10",
    ("worker", "-Q"): "the queues: --queue mail --queue reports",
    ("worker", "--loglevel"): "write it --log-level INFO, or -l INFO",
    ("worker", "--workers"): "the number of processes: --processes 4",
    ("worker", "--threads"): "the number of jobs at a time: --concurrency 10",
    ("worker", "--burst"): "a worker runs until it is stopped; in a test, a harness runs what is due",
    ("worker", "-B"): "every worker fires the schedules; leave it out",
    ("worker", "--beat"): "every worker fires the schedules; leave it out",
}
"""By command: options that other tools have, and what to write."""


class HelpfulGroup(click.Group):
    """A group that answers an unknown command with the line to write."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, word) is None and not word.startswith("-"):
            ctx.fail(self._explain(ctx, args))
        return super().resolve_command(ctx, args)

    def _explain(self, ctx: click.Context, args: list[str]) -> str:
        word = args[0]
        known = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        close = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
        said = f"there is no command {word!r}"
        path = " ".join(["windlass", *ctx.command_path.split()[len((ctx.find_root().info_name or "").split()) :]])
        elsewhere = ELSEWHERE.get(self.name or "", {}).get(word.lower())
        if elsewhere is not None:
            return f"{said}; {elsewhere}"
        if close:
            return f"{said}; did you mean: {shlex.join([*path.split(), close[0], *args[1:]])}"
        if ctx.parent is None and (meant := _guess_command(word, args)):
            return f"{said}; did you mean: {meant}"
        if path == "windlass jobs":
            return (
                f"{said}, and a filter is made of terms such as queue:{word} or type:{word}; see: windlass jobs --help"
            )
        return f"{said}; there are: {', '.join(known)}"


def _guess_command(word: str, args: list[str]) -> str | None:
    """A program, a job or a term of a filter as the first word: its command is missing."""
    from windlass.model.filter import FIELDS, partial_id

    rest = shlex.join(args)
    if word.endswith(".py"):
        return f"windlass dev {rest}"
    if re.split(r"[.:]", word)[0] in FIELDS and ":" in word:
        return f"windlass jobs {rest}"
    if re.fullmatch(r"[\w./]+:\w+", word):
        return f"windlass run {rest}"
    return f"windlass jobs show {word}" if partial_id(word) else None


def explain_usage(error: click.UsageError) -> click.UsageError:
    """The error with the next line to write, and with its commands as the user can type them."""
    said = error.format_message()
    if error.ctx is not None:
        root = error.ctx.find_root()
        typed: list[str] = root.meta.get(TYPED, [])
        if isinstance(error, NoSuchOption):
            said = _explain_option(said, error.option_name, " ".join(_commands_of(error.ctx)), root.command, typed)
        elif isinstance(error, click.MissingParameter) or said.startswith("Got unexpected extra"):
            said = _add_example(said, _commands_of(error.ctx))
    return click.UsageError(name_command(said), error.ctx)


def _explain_option(said: str, option: str, command: str, root: click.Command, typed: list[str]) -> str:
    if option in PROGRAM_OPTIONS:
        program = next((word for before, word in pairwise(typed) if before in PROGRAM_OPTIONS), "app.py")
        command = " ".join(_commands_in(root, typed)) or "worker"
        return f"No such option {option!r}. -a names the program, after the command: windlass {command} -a {program}"
    known = OPTIONS.get((command, option))
    return said if known is None else f"No such option {option!r}: {known}"


def _add_example(said: str, commands: list[str]) -> str:
    example = EXAMPLES.get(" ".join(commands)) or EXAMPLES.get(commands[0] if commands else "")
    return said if example is None else f"{said.rstrip('.')}. Write it like: {example.format(command=commands[-1])}"


def _commands_of(ctx: click.Context) -> list[str]:
    """The commands above and in this context: `jobs`, `list`."""
    return [] if ctx.parent is None else [*_commands_of(ctx.parent), ctx.info_name or ""]


def _commands_in(command: click.Command, args: list[str]) -> list[str]:
    """The commands among the words: `jobs list`."""
    found: list[str] = []
    for word in args:
        if isinstance(command, click.Group) and word in command.commands:
            found.append(word)
            command = command.commands[word]
    return found
