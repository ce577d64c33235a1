"""`windlass status`: health, counts, queues and workers in one document, for scripts and support."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.exit_codes import REFUSED
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import print_json, print_text

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.store.protocol import Store


@click.command(short_help="Show health, counts, queues and workers at once.")
@store_options
@click.pass_context
def status(ctx: click.Context, app: str | None, url: str | None, as_json: bool) -> None:
    """Show health, the number of jobs by state, queues and workers at once.

    With --json it is one document. Exit 0 when nothing needs a look, and 1 otherwise, as `windlass health`.
    """
    settings = load_settings(url, app)
    found = call_store(settings, lambda store: read_status(store, settings))
    if as_json:
        print_json(found)
    else:
        _print(found)
    ctx.exit(0 if found["health"]["ok"] else REFUSED)


async def read_status(store: Store, settings: Settings) -> dict[str, Any]:
    """The document."""
    from windlass.documents import health_document, queue_document, worker_document
    from windlass.methods.overview import hide_secrets, read_health
    from windlass.methods.reads import read_queues
    from windlass.model.rows import COUNTED

    return {
        "health": health_document(await read_health(store, hide_secrets(settings.redact))),
        "counts": {state.value: count for state, count in (await store.counts()).items()},
        "counted": COUNTED,
        "queues": [queue_document(row) for row in await read_queues(store)],
        "workers": [worker_document(row) for row in await store.workers(processors=True)],
    }


def _print(found: dict[str, Any]) -> None:
    print_text(found["health"]["sentence"].replace("\u00a0", " "))
    most = found["counted"]
    counts = [f"{f'{most:,}+' if count > most else f'{count:,}'} {state}" for state, count in found["counts"].items()]
    print_text(f"jobs: {', '.join(counts)}")
    alive = sum(worker["state"] in ("busy", "idle") for worker in found["workers"])
    print_text(f"{len(found['queues'])} queues, {alive} live workers; more: windlass queues, windlass workers")
