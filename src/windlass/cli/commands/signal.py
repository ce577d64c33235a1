"""`windlass jobs signal`: send a signal to a job, before or while the job waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.exit_codes import REFUSED
from windlass.cli.parse.find_jobs import find_one
from windlass.cli.parse.shield import NegativeNumbersCommand, remove_shield
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import print_json, print_note, print_text

if TYPE_CHECKING:
    from windlass.model.job import Job
    from windlass.store.protocol import Store


@click.command("signal", cls=NegativeNumbersCommand, short_help="Send a signal to a job.")
@click.argument("id")
@click.argument("name")
@click.argument("value", required=False)
@store_options
@click.pass_context
def signal(
    ctx: click.Context, id: str, name: str, value: str | None, app: str | None, url: str | None, as_json: bool
) -> None:
    """Send the signal NAME to a job, which receives it from `await ctx.wait_signal(NAME)`.

    VALUE is JSON; a VALUE that is no JSON is sent as text, and without VALUE null is sent. A signal that arrives before
    the job waits for it is kept. Only the first signal of a name counts. A second one, and a signal to a job that has
    ended, are refused (exit 1).
    """
    from windlass.errors import TransitionRefused

    name, value = remove_shield(name), None if value is None else remove_shield(value)
    payload = _payload(name, value)
    settings = load_settings(url, app)
    job = call_store(settings, lambda store: find_one(ctx, store, id))
    why: str | None = None
    try:
        if not call_store(settings, lambda store: _send(store, job, name, payload, settings.acting)):
            why = f"job {job.id} was sent the signal {name!r} before; only the first one counts"
    except TransitionRefused as error:
        why = str(error)
    if as_json:
        print_json({"id": job.id, "name": name, "sent": why is None})
    if why is not None:
        print_note(why)
        ctx.exit(REFUSED)
    if not as_json:
        print_text(f"signal {name} sent to {job.type} {job.id}", style="green")


async def _send(store: Store, job: Job, name: str, payload: str, actor: str) -> bool:
    waiting = (await store.waits([job.id])).get(job.id)
    sent = await store.signal(job.id, name, payload, actor=actor)
    if sent:
        await store.wake(job.queue)
    if waiting is not None and waiting.signal not in (None, name):
        print_note(f"the signal is kept; job {job.id} waits for the signal {waiting.signal!r} now")
    return sent


def _payload(name: str, value: str | None) -> str:
    """The value as JSON that every store can hold."""
    import msgspec

    from windlass.names import name_problem
    from windlass.payload.profile import encode

    wrong = name_problem(name)
    if wrong is not None:
        raise click.UsageError(f"the signal's name {wrong}")
    if value is None:
        return "null"
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        decoded = value
    return encode(decoded, path="VALUE")
