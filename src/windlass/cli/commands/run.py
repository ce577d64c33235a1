"""`windlass run`: enqueue one job from a shell, and wait for what comes of it."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.options import limit, parse_duration
from windlass.cli.show.output import as_json, format_error

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.declare.jobtype import ConfiguredJob
    from windlass.handles.job import JobHandle

DEAD = 1
TIMED_OUT = 124  # as timeout(1) says it
INTERRUPTED = 130
PATIENCE = 2.0  # seconds before asking whether anybody serves the queue

NEGATIVE = re.compile(r"-\.?\d")
SHIELD = "\0"  # before a negative number, which would be an option; no argument of a process can contain it


class NegativeNumbersCommand(click.Command):
    """A command whose arguments may be negative numbers: `-5` is five below zero and no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = (param for param in self.params if isinstance(param, click.Option) and not param.is_flag)
        wants_value = {name for option in options for name in option.opts}
        words = zip(["", *args], args, strict=False)
        return super().parse_args(
            ctx,
            [SHIELD + word if NEGATIVE.match(word) and before not in wants_value else word for before, word in words],
        )


@click.command(cls=NegativeNumbersCommand, short_help="Enqueue one job and print its result.")
@click.argument("target")
@click.argument("arguments", nargs=-1, metavar="[VALUE | NAME=VALUE]…")
@click.option("--queue", help="The queue, instead of the job type's own.")
@click.option("--delay", metavar="DURATION", callback=parse_duration, help="Start after this time, such as 30s.")
@limit
@click.option("--timeout", metavar="DURATION", callback=parse_duration, help="Wait no longer than this, such as 30s.")
@click.option("--no-wait", is_flag=True, help="Print the job's id and end.")
@as_json
@click.pass_context
def run(
    ctx: click.Context,
    target: str,
    arguments: tuple[str, ...],
    queue: str | None,
    delay: float | None,
    limits: dict[str, str] | None,
    timeout: float | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Enqueue the job TARGET (such as app:add), wait for it and print its result; with --json, the whole job.

    A VALUE is JSON or plain text, whichever fits the handler's hints: 2, hello, '[1, 2]', '{"a": 1}'. NAME=VALUE is a
    keyword; a text that looks like one is written as JSON: '"a=b"'.
    """
    from windlass.cli.parse.arguments import parse_arguments
    from windlass.declare.program import find_job

    job_type = find_job(target)
    words = [word.removeprefix(SHIELD) for word in arguments]
    args, kwargs = parse_arguments(job_type.definition.signature, words)
    handle = _enqueue(job_type, target, args, kwargs, queue=queue, delay=delay, limits=limits)
    if handle.existing and not as_json:
        _print_error(f"nothing was enqueued; job {handle.id} has the key already")
    code = 0
    if not no_wait:
        code = _wait(job_type.app, handle, target, timeout, quiet=as_json)
    if as_json and code != INTERRUPTED:
        from windlass.cli.show.job_json import job_document
        from windlass.cli.show.output import print_json

        print_json(job_document(handle.record()))
    elif no_wait:
        click.echo(str(handle.id))
    ctx.exit(code)


def _enqueue(
    job_type: ConfiguredJob[..., Any],
    target: str,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    queue: str | None,
    delay: float | None,
    limits: dict[str, str] | None,
) -> JobHandle[Any]:
    from windlass.errors import SchemaMissing

    try:
        return job_type.options(queue=queue, delay=delay, limits=limits).enqueue(*args, **kwargs)
    except SchemaMissing as error:
        program = target.rpartition(":")[0]
        where = str(error).partition(";")[0]
        raise SchemaMissing(f"{where}; run: windlass migrate {program} (or: windlass dev {program})") from error


def _wait(app: Windlass, handle: JobHandle[Any], target: str, timeout: float | None, *, quiet: bool) -> int:
    """Until the job has ended; the answer is the exit code."""
    from windlass.errors import JobUnsuccessful, ResultTimeout

    try:
        output = _result(app, handle, target, timeout)
        if not quiet:
            click.echo(_format_output(output))
    except JobUnsuccessful as error:
        for verb in ("replay", "resume"):
            error = type(error)(str(error).replace(f"job.{verb}()", f"windlass jobs {verb} {handle.id}"))
        return _print_error(str(error), DEAD)
    except ResultTimeout:
        return _print_error(f"job {handle.id} has not ended within {timeout:g} s; it goes on", TIMED_OUT)
    except KeyboardInterrupt:
        return _print_error(f"job {handle.id} goes on without you; it was not cancelled", INTERRUPTED)
    return 0


def _result(app: Windlass, handle: JobHandle[Any], target: str, timeout: float | None) -> Any:
    from windlass.errors import ResultTimeout

    began = time.monotonic()
    if timeout is None or timeout > PATIENCE:
        try:
            return _wait_for_output(handle, PATIENCE)
        except ResultTimeout:
            _warn_when_unserved(app, handle, target)
    return _wait_for_output(handle, None if timeout is None else max(0.0, timeout - (time.monotonic() - began)))


def _wait_for_output(handle: JobHandle[Any], timeout: float | None) -> Any:
    """The output as it is stored: a result class would only be turned into JSON again."""
    handle.result(timeout=timeout)
    return handle.record().output


def _warn_when_unserved(app: Windlass, handle: JobHandle[Any], target: str) -> None:
    from datetime import UTC, datetime

    job = handle.record()
    now = datetime.now(UTC)
    for row in app.workers():
        serves = (row.queues is None or job.queue in row.queues) and job.type in row.types
        if serves and not row.dead and row.alive_until > now:
            return
    program = target.rpartition(":")[0]
    _print_error(
        f"job {job.id} waits: no live worker serves {job.type!r} on queue {job.queue!r}; start one with: windlass "
        f"worker {program} (or: windlass dev {program})"
    )


def _format_output(output: str | None) -> str:
    """JSON, but a bare text as it is: what a shell wants to use."""
    import msgspec

    from windlass.observe.logs import escape

    value = msgspec.json.decode(output or "null")
    if not isinstance(value, str):
        return output or "null"
    return escape(value, lines=True) if sys.stdout.isatty() else value


def _print_error(text: str, code: int = 0) -> int:
    from windlass.observe.logs import escape

    click.echo(format_error(escape(text, lines=True)), err=True)
    return code
