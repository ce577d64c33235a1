"""`windlass jobs rerun`: enqueue a copy of a job, with another input if one is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands.bulk import remove_broker_copies
from windlass.cli.exit_codes import REFUSED
from windlass.cli.parse.find_jobs import find_one
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import print_json, print_note, print_text

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.model.job import Job, NewJob
    from windlass.store.protocol import Store


@click.command("rerun", short_help="Enqueue a copy of a job, with another input.")
@click.argument("id")
@click.option("--input", "text", metavar="JSON", help="The whole input of the copy; without it, the old input.")
@click.option("--discard", is_flag=True, help="Discard the old job, which must be dead.")
@store_options
@click.pass_context
def rerun(
    ctx: click.Context, id: str, text: str | None, discard: bool, app: str | None, url: str | None, as_json: bool
) -> None:
    """Enqueue a copy of a job, with attempts from zero: `windlass jobs rerun 7c1e04 --input '{"to": "ann"}'`.

    With -a, the program checks the input; without it, what a worker announced about the type. With --discard, the copy
    is written and the old job discarded, or neither (exit 1).
    """
    from windlass.errors import TransitionRefused

    settings, input = load_settings(url, app), _parse(text)

    async def copy(store: Store) -> tuple[Job, NewJob]:
        job = await find_one(ctx, store, id)
        return job, await _copy(store, job, settings, app, input, discard)

    try:
        old, new = call_store(settings, copy)
    except TransitionRefused as error:
        print_note(str(error))
        ctx.exit(REFUSED)
    if as_json:
        print_json({"id": new.id, "copied_from": old.id, "discarded": discard})
    else:
        which = ", which was discarded" * discard
        print_text(f"{new.type} {new.id} enqueued, a copy of {old.id}{which}", style="green")
    if discard:
        remove_broker_copies(settings, as_json, {old.id})


async def _copy(
    store: Store, job: Job, settings: Settings, app: str | None, input: dict[str, Any] | None, discard: bool
) -> NewJob:
    from windlass.declare.program import load
    from windlass.handles.rerun import rerun as copy

    definition = None if app is None else load(app)._registry.of(job)
    return await copy(store, job, definition, settings, input=input, discard=discard, actor=settings.acting)


def _parse(text: str | None) -> dict[str, Any] | None:
    import msgspec

    if text is None:
        return None
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise click.UsageError(f'--input is not JSON: {error}; write: --input \'{{"to": "ann"}}\'') from None
    if not isinstance(decoded, dict):
        raise click.UsageError('--input is not a JSON object; write: --input \'{"to": "ann"}\'')
    return decoded
