"""`windlass jobs signal`: send a job the signal that it waits for, or will."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.commands.run import SHIELD, WithNegatives
from windlass.cli.parse.find_jobs import explain_ambiguous, find
from windlass.cli.parse.store_option import app_option, ask, settings_of, url_option
from windlass.cli.show.output import as_json, note, print_json, say

if TYPE_CHECKING:
    from windlass.model.job import Job
    from windlass.store.protocol import Store

REFUSED = 1


@click.command("signal", cls=WithNegatives, short_help="Send a signal to a job.")
@click.argument("id")
@click.argument("name")
@click.argument("value", required=False)
@app_option
@url_option
@as_json
@click.pass_context
def signal(
    ctx: click.Context, id: str, name: str, value: str | None, app: str | None, url: str | None, as_json: bool
) -> None:
    """Send the signal NAME to a job, which receives it from `await ctx.signal(NAME)`.

    VALUE is JSON; what is no JSON is taken as text, and without it the value is null. A signal that is sent before
    anybody waits is kept. The first of a name counts: a second one is refused, and so is one to a job that has ended
    (exit 1).
    """
    from windlass.errors import TransitionRefused

    name, value = name.removeprefix(SHIELD), None if value is None else value.removeprefix(SHIELD)
    payload = _payload(name, value)
    settings = settings_of(url, app)
    found = ask(settings, lambda store: find(store, id))
    if len(found) > 1:
        ctx.exit(explain_ambiguous(id, found))
    job = found[0]
    why: str | None = None
    try:
        if not ask(settings, lambda store: _send(store, job, name, payload, settings.acting)):
            why = f"job {job.id} was sent the signal {name!r} before, and the first one counts"
    except TransitionRefused as error:
        why = str(error)
    if as_json:
        print_json({"id": job.id, "name": name, "sent": why is None})
    if why is not None:
        note(why)
        ctx.exit(REFUSED)
    if not as_json:
        say(f"signal {name} sent to {job.type} {job.id}", style="green")


async def _send(store: Store, job: Job, name: str, payload: str, actor: str) -> bool:
    waiting = await store.waiting(job.id)
    sent = await store.signal(job.id, name, payload, actor=actor)
    if sent:
        await store.wake(job.queue)
    if waiting is not None and waiting.signal not in (None, name):
        note(f"it is kept; job {job.id} waits for the signal {waiting.signal!r} now")
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
