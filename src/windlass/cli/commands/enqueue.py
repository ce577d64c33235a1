"""`windlass enqueue`: enqueue a job from a shell, without waiting for its end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass.cli.parse.arguments import parse_arguments
from windlass.cli.parse.complete import complete_job, complete_name
from windlass.cli.parse.gate_options import suggest_name
from windlass.cli.parse.options import json_option, limit_option, parse_duration
from windlass.cli.parse.program_argument import guess
from windlass.cli.parse.shield import NegativeNumbersCommand, remove_shield
from windlass.cli.parse.store_option import app_option
from windlass.cli.show.output import print_json, print_note
from windlass.errors import InvalidInput, ProgramError, SchemaMissing

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.declare.jobtype import ConfiguredJob
    from windlass.handles.job import JobHandle
    from windlass.payload.signature import Signature


class Enqueued(NamedTuple):
    """The job that a command enqueued, its app, and its program as the user named it."""

    handle: JobHandle[Any]
    app: Windlass
    program: str


JOB_OPTIONS = (
    click.argument("target", required=False, shell_complete=complete_job),
    click.argument("arguments", nargs=-1, metavar="[VALUE | NAME=VALUE]…"),
    click.option("--type", "type", help="The job type; TARGET is then the program that declares it."),
    click.option(
        "--input", "document", metavar="JSON", help="All arguments as one JSON object; - reads it from stdin."
    ),
    click.option("--queue", help="The queue, instead of the job type's own.", shell_complete=complete_name("queue")),
    click.option("--priority", type=int, help="Jobs with a higher priority start first."),
    click.option("--delay", metavar="DURATION", callback=parse_duration, help="Start after this time, such as 30s."),
    click.option("--tenant", help="The tenant of the job.", shell_complete=complete_name("tenant")),
    click.option("--key", help="The unique key; if another job of the type holds it, that job is taken."),
    click.option("--idempotency-key", help="A key of this request; repeating the request makes no second job."),
    click.option(
        "--max-attempts", type=click.IntRange(min=1), help="The number of attempts, instead of the job type's own."
    ),
    limit_option,
    app_option,
    json_option,
)


def job_options(command: Any) -> Any:
    """The job, its arguments and its options: `enqueue` and `run` take the same."""
    for option in reversed(JOB_OPTIONS):
        command = option(command)
    return command


@click.command(cls=NegativeNumbersCommand, short_help="Enqueue one job and print its id.")
@job_options
def enqueue(as_json: bool, **given: Any) -> None:
    """Enqueue the job TARGET and print its id.

    \b
    windlass enqueue app:add 2 b=3
    windlass enqueue -a app.py EMAIL_SEND to=ann@example.org
    windlass enqueue app.py --type EMAIL_SEND --input '{"to": "ann@example.org"}'

    TARGET is a job such as app:add or app.py:add; with -a APP (or WINDLASS_APP) it may be the name of a job type; with
    --type it is the program. A VALUE is JSON or plain text, whichever fits the handler's type hints.
    """
    handle = enqueue_given("enqueue", **given).handle
    if as_json:
        from windlass.cli.show.job_json import job_document

        print_json({**job_document(handle.record()), "existing": handle.existing})
    else:
        click.echo(str(handle.id))
        if handle.existing:
            print_note("nothing was enqueued; that job has the key already")


def enqueue_given(
    command: str,
    *,
    target: str | None,
    arguments: tuple[str, ...],
    type: str | None,
    document: str | None,
    app: str | None,
    **options: Any,
) -> Enqueued:
    """Enqueue what the command line describes."""
    words = [remove_shield(word) for word in arguments]
    job_type = resolve(command, target, app, type)
    try:
        args, kwargs = _read_arguments(job_type, words, document)
    except InvalidInput as error:
        if document is not None:
            raise
        raise _with_line(error, job_type._definition.signature, f"windlass {command} {target}", options) from error
    if options.get("queue") is not None:
        suggest_name("queue", options["queue"], {definition.queue for definition in job_type._app._registry})
    named = app if type is None and app else (target or app or "")
    program = named.rpartition(":")[0] or named
    return Enqueued(enqueue_job(job_type, args, kwargs, options, program=program), job_type._app, program)


def resolve(command: str, target: str | None, app: str | None, type: str | None) -> ConfiguredJob[..., Any]:
    """The job type, by its function or by its name in a program."""
    from windlass.declare.program import find_job

    if type is not None:
        program = target or app
        if program is None or not re.search(r"[A-Za-z_]", program):  # `--type add 2 3`: the first argument
            raise ProgramError(f"--type {type}: name its program first: windlass {command} app.py --type {type}")
        return _find_in_program(program, type)
    if target is None:
        raise ProgramError(f"name a job: windlass {command} app:add 2 3")
    if app is not None and not any(mark in target for mark in (":", "/")):
        return _find_in_program(app, target)
    try:
        return find_job(target)
    except ProgramError as error:
        raise ProgramError(f"{error}{_suggest_job(command, target)}") from error


def _with_line(error: InvalidInput, signature: Signature, command: str, options: dict[str, Any]) -> InvalidInput:
    """The error with a command that is right; an option that was given as an argument becomes a flag."""
    line, said = " ".join([command, *(f"{name}=…" for name in signature.names)]), str(error)
    wrong = error.path.removeprefix("$.")
    if wrong in options and wrong not in signature.names:
        line, said = f"{line} --{wrong.replace('_', '-')} …", f"{signature.name}() has no argument {wrong!r}"
    return InvalidInput(f"{said}; write it like: {line}", path=error.path)


def _suggest_job(command: str, target: str) -> str:
    """For a bare name: the program of this directory before it."""
    if not target.isidentifier() or Path(f"{target}.py").exists() or Path(target).exists():
        return ""
    try:
        program = guess(Path.cwd()).removesuffix(".py")
    except ProgramError:
        program = "app"
    return f"; a job is named with its program: windlass {command} {program}:{target}"


def _find_in_program(program: str, type: str) -> ConfiguredJob[..., Any]:
    from windlass.declare.jobtype import ConfiguredJob
    from windlass.declare.options import NONE
    from windlass.declare.pipeline_type import Pipeline
    from windlass.declare.program import load

    app = load(program)
    plan = app._registry.pipelines.get(type)
    if plan is not None and app._registry.get(type) is None:
        return Pipeline(app, plan)
    return ConfiguredJob(app, app._registry.require(type), NONE)


def _read_arguments(
    job_type: ConfiguredJob[..., Any], words: Sequence[str], document: str | None
) -> tuple[list[Any], dict[str, Any]]:
    if document is None:
        return parse_arguments(job_type._definition.signature, words)
    if words:
        raise click.UsageError("--input holds all arguments; remove the others")
    return [], _parse_object(document)


def _parse_object(document: str) -> dict[str, Any]:
    """A JSON object, from the option or from stdin."""
    import sys

    import msgspec

    text = sys.stdin.buffer.read() if document == "-" else document.encode(errors="surrogateescape")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f'--input is not JSON: {error}; write it like --input \'{{"to": "ann"}}\'') from None
    if not isinstance(value, dict):
        raise InvalidInput(f"--input is {_name_kind(value)}, and arguments are an object: --input '{{\"name\": …}}'")
    return value


def _name_kind(value: object) -> str:
    return {list: "an array", str: "a text", bool: "a truth value", type(None): "null"}.get(type(value), "a number")


def enqueue_job(
    job_type: ConfiguredJob[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    options: dict[str, Any],
    *,
    program: str,
) -> JobHandle[Any]:
    """Enqueue; where there is no schema yet, the error names the command that makes it for this program."""
    try:
        return job_type.options(**options).enqueue(*args, **kwargs)
    except SchemaMissing as error:
        where = str(error).partition(";")[0]
        raise SchemaMissing(f"{where}; run: windlass migrate {program} (or: windlass dev {program})") from error
