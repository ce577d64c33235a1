"""`windlass health`: whether all is well, in one sentence, with the next commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.exit_codes import REFUSED
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import print_json, print_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.model.reports.health import NextStep

STYLES = {"bad": "bold red", "warning": "yellow", "well": "green", "idle": "green"}


@click.command(short_help="Say in one sentence whether all is well.")
@store_options
@click.pass_context
def health(ctx: click.Context, app: str | None, url: str | None, as_json: bool) -> None:
    """Say in one sentence whether all is well, then what else needs a look, each with the next command.

    It looks at queues without a worker, queues that do not move, dead jobs, queues that grow, late schedules, and
    closed gates and spent budgets with jobs behind them. Exit 0 when nothing needs a look, and 1 otherwise. `windlass
    doctor` checks the database itself.
    """
    from windlass.documents import health_document
    from windlass.methods.overview import hide_secrets, read_health

    settings = load_settings(url, app)
    found = call_store(settings, lambda store: read_health(store, hide_secrets(settings.redact)))
    if as_json:
        print_json(health_document(found))
    else:
        _print(found.sentence, found.evidence, STYLES[found.level], found.actions, app)
        for finding in found.findings:
            _print(finding.sentence, finding.evidence, STYLES[finding.level], finding.actions, app)
    ctx.exit(0 if found.ok else REFUSED)


def _print(sentence: str, evidence: str, style: str, actions: Sequence[NextStep], app: str | None) -> None:
    print_text(_breaking(sentence), style=style)
    if evidence:
        print_text(f"  {_breaking(evidence)}")
    for step in actions:
        command = step.command if app is None else step.command.replace("worker app.py", f"worker {app}")
        print_text(f"  → {command}")


def _breaking(text: str) -> str:
    """With ordinary spaces: a command that searches the output finds `7 m 52 s`."""
    return text.replace("\u00a0", " ")
