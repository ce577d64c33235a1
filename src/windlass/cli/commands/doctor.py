"""`windlass doctor`: checks the database, the workers and the queues, and advises the next command."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windlass.cli.exit_codes import REFUSED
from windlass.cli.parse.options import json_option
from windlass.cli.parse.program_argument import program_argument
from windlass.cli.parse.store_option import load_settings, url_option
from windlass.cli.show.output import (
    escape_text,
    format_count,
    name_command,
    print_json,
    print_text,
    to_click_style,
    wrap,
)

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.store.doctor.checkup import Finding

LEVEL = len("problem")
STYLES = {"problem": "bold red", "warning": "yellow", "ok": "green"}


@click.command(short_help="Check the database, the workers and the queues.")
@program_argument("app")
@url_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, app: str | None, url: str | None, as_json: bool) -> None:
    """Check the database, the workers and the queues, and advise what to do; problems come first.

    With APP (app.py or package.module:app) the database is that of the program. The doctor only reads. Exit 1 when
    there is a problem; with warnings alone exit 0.
    """
    import asyncio

    from windlass.store import masked
    from windlass.store.doctor.checkup import Level

    settings = load_settings(url, app)
    found = asyncio.run(_examine(settings))
    findings = sorted(
        (_name_program(app, finding) for finding in found), key=lambda each: list(Level).index(each.level)
    )
    healthy = all(finding.level is not Level.PROBLEM for finding in findings)
    if as_json:
        print_json({"database": masked(settings.url), "healthy": healthy, "findings": findings})
    else:
        _print_findings(findings)
    ctx.exit(0 if healthy else REFUSED)


async def _examine(settings: Settings) -> list[Finding]:
    """All findings; joins and limits are checked only where the schema has their tables."""
    import asyncio

    from windlass.store.doctor.admission import examine_admission
    from windlass.store.doctor.checkup import Level, make_checkup, not_checked
    from windlass.store.doctor.joins import examine_joins

    found = await make_checkup(settings).examine()
    if not any(finding.check == "schema" and finding.level is Level.OK for finding in found):
        return found
    checks = {"joins": examine_joins, "limits": examine_admission}
    results = await asyncio.gather(*(check(settings) for check in checks.values()), return_exceptions=True)
    for check, findings in zip(checks, results, strict=True):
        found += [not_checked(check, findings)] if isinstance(findings, BaseException) else findings
    return found


def _name_program(app: str | None, finding: Finding) -> Finding:
    """The finding with the program's name in its advice, where the command line has one."""
    import msgspec

    if app is None or finding.advice is None:
        return finding
    advice = finding.advice.replace("worker app.py", f"worker {app}").replace(
        "windlass migrate", f"windlass migrate {app}"
    )
    return msgspec.structs.replace(finding, advice=advice)


def _print_findings(findings: Sequence[Finding]) -> None:
    if not sys.stdout.isatty():
        for each in findings:
            advice = name_command(each.advice or "")
            click.echo("\t".join(map(escape_text, (each.level, each.check, each.said, advice))))
        return
    from windlass.cli.show.live_log import uses_colour

    width = max(len(each.check) for each in findings)
    margin = " " * (LEVEL + 2 + width + 2)
    for each in findings:
        level = f"{each.level:<{LEVEL}}"
        shown = click.style(level, **to_click_style(STYLES[each.level])) if uses_colour(sys.stdout) else level
        text = wrap(escape_text(each.said), margin, "")
        click.echo(f"{shown}  {each.check:<{width}}  {text[len(margin) :]}", color=True)
        if each.advice is not None:
            click.echo(wrap(f"→ {escape_text(name_command(each.advice))}", margin, "  "))
    counts = Counter(each.level.value for each in findings)
    results = [format_count(counts[level], level) for level in ("problem", "warning") if counts[level]]
    print_text("\n" + (", ".join(results) if results else "everything is well"), style="bold" if results else "green")
