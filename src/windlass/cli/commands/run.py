"""`windlass run`: enqueue one job from a shell, and wait for its result."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands.enqueue import Enqueued, enqueue_given, job_options
from windlass.cli.exit_codes import INTERRUPTED, REFUSED, TIMED_OUT
from windlass.cli.parse.options import parse_duration
from windlass.cli.parse.shield import NegativeNumbersCommand
from windlass.cli.show.output import print_note

if TYPE_CHECKING:
    from windlass.handles.job import JobHandle

PATIENCE = 2.0  # seconds of waiting before the command checks whether a live worker serves the queue


@click.command(cls=NegativeNumbersCommand, short_help="Enqueue one job and print its result.")
@job_options
@click.option("--timeout", metavar="DURATION", callback=parse_duration, help="Wait no longer than this, such as 30s.")
@click.option("--no-wait", is_flag=True, help="Print the job's id and do not wait.")
@click.pass_context
def run(ctx: click.Context, /, timeout: float | None, no_wait: bool, as_json: bool, **given: Any) -> None:
    """Enqueue the job TARGET (such as app:add), wait for it and print its result; with --json, the whole job.

    The job and its options are those of `windlass enqueue`.

    A VALUE is JSON or plain text, whichever fits the handler's type hints: 2, hello, '[1, 2]', '{"a": 1}'. NAME=VALUE
    is a keyword argument; to pass a text of that form, write it as JSON: '"a=b"'.
    """
    enqueued = enqueue_given("run", **given)
    handle = enqueued.handle
    if handle.existing and not as_json:
        print_note(f"nothing was enqueued; job {handle.id} has the key already")
    code = 0
    if not no_wait:
        code = _wait(enqueued, timeout, quiet=as_json)
    if as_json and code != INTERRUPTED:
        from windlass.cli.show.job_json import job_document
        from windlass.cli.show.output import print_json

        print_json(job_document(handle.record()))
    elif no_wait:
        click.echo(str(handle.id))
    ctx.exit(code)


def _wait(enqueued: Enqueued, timeout: float | None, *, quiet: bool) -> int:
    """Wait until the job has ended, and print its result; returns the exit code."""
    from windlass.errors import JobUnsuccessful, ResultTimeout

    handle = enqueued.handle
    try:
        output = _result(enqueued, timeout)
        if not quiet:
            click.echo(_format_output(output))
    except JobUnsuccessful as error:
        for verb in ("replay", "resume"):
            error = type(error)(str(error).replace(f"job.{verb}()", f"windlass jobs {verb} {handle.id}"))
        print_note(str(error))
        return REFUSED
    except ResultTimeout:
        print_note(f"job {handle.id} has not ended within {timeout:g} s; it goes on")
        return TIMED_OUT
    except KeyboardInterrupt:
        print_note(f"job {handle.id} goes on; it was not cancelled")
        return INTERRUPTED
    return 0


def _result(enqueued: Enqueued, timeout: float | None) -> Any:
    from windlass.errors import ResultTimeout

    began = time.monotonic()
    if timeout is None or timeout > PATIENCE:
        try:
            return _wait_for_output(enqueued.handle, PATIENCE)
        except ResultTimeout:
            _print_unserved(enqueued)
    return _wait_for_output(
        enqueued.handle, None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
    )


def _wait_for_output(handle: JobHandle[Any], timeout: float | None) -> Any:
    """The output as it is stored: an object of a result class would only be turned into JSON again."""
    handle.result(timeout=timeout)
    return handle.record().output


def _print_unserved(enqueued: Enqueued) -> None:
    job = enqueued.handle.record()
    enqueued.app._client.noted_unserved = True  # by the note below, which names the program
    if any(row.serves(job) for row in enqueued.app.workers()):
        return
    program = enqueued.program
    print_note(
        f"job {job.id} waits: no live worker serves {job.type!r} on queue {job.queue!r}; start one with: windlass "
        f"worker {program} (or: windlass dev {program})"
    )


def _format_output(output: str | None) -> str:
    """JSON; a string is printed without quotes, for use in a shell."""
    import msgspec

    from windlass.observe.logs import escape

    value = msgspec.json.decode(output or "null")
    if not isinstance(value, str):
        return output or "null"
    return escape(value, lines=True) if sys.stdout.isatty() else value
