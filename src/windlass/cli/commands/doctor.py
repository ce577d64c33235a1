"""`windlass doctor`: is everything well, and if not, what is the next command?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windlass.cli.parse.store_option import APP, settings_of, url_option
from windlass.cli.show.output import as_json, click_style, inert, plural, print_json, say, wrapped

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.store.doctor.checkup import Finding

SICK = 1
LEVEL = len("problem")
STYLES = {"problem": "bold red", "warning": "yellow", "ok": "green"}


@click.command(short_help="Check the database, the workers and the queues, and say what to do.")
@click.argument("app", required=False, envvar=APP)
@url_option
@as_json
@click.pass_context
def doctor(ctx: click.Context, app: str | None, url: str | None, as_json: bool) -> None:
    """Check the database, the workers and the queues, and say what to do; worst first.

    With APP (app.py or package.module:app) the database is the program's own. Reads only. Exit 1 when there is a
    problem; warnings alone are exit 0.
    """
    import asyncio

    from windlass.store import masked
    from windlass.store.doctor.checkup import Level

    settings = settings_of(url, app)
    found = asyncio.run(_examine(settings))
    findings = sorted((_for(app, finding) for finding in found), key=lambda each: list(Level).index(each.level))
    healthy = all(finding.level is not Level.PROBLEM for finding in findings)
    if as_json:
        print_json({"database": masked(settings.url), "healthy": healthy, "findings": findings})
    else:
        _tell(findings)
    ctx.exit(0 if healthy else SICK)


async def _examine(settings: Settings) -> list[Finding]:
    """What waits, and for what, can be asked after only where the schema has it."""
    import asyncio

    from windlass.store.doctor.admission import examine_admission
    from windlass.store.doctor.checkup import Level, make_checkup, not_checked
    from windlass.store.doctor.joins import examine_joins

    found = await make_checkup(settings).examine()
    if not any(finding.check == "schema" and finding.level is Level.OK for finding in found):
        return found
    checks = {"joins": examine_joins, "limits": examine_admission}
    told = await asyncio.gather(*(check(settings) for check in checks.values()), return_exceptions=True)
    for check, findings in zip(checks, told, strict=True):
        found += [not_checked(check, findings)] if isinstance(findings, BaseException) else findings
    return found


def _for(app: str | None, finding: Finding) -> Finding:
    """Advice that names the program, where one was named."""
    import msgspec

    if app is None or finding.advice is None:
        return finding
    advice = finding.advice.replace("worker app.py", f"worker {app}").replace(
        "windlass migrate", f"windlass migrate {app}"
    )
    return msgspec.structs.replace(finding, advice=advice)


def _tell(findings: Sequence[Finding]) -> None:
    if not sys.stdout.isatty():
        for each in findings:
            click.echo("\t".join(map(inert, (each.level, each.check, each.said, each.advice or ""))))
        return
    from windlass.cli.show.live_log import coloured

    width = max(len(each.check) for each in findings)
    margin = " " * (LEVEL + 2 + width + 2)
    for each in findings:
        level = f"{each.level:<{LEVEL}}"
        shown = click.style(level, **click_style(STYLES[each.level])) if coloured(sys.stdout) else level
        said = wrapped(inert(each.said), margin, "")
        click.echo(f"{shown}  {each.check:<{width}}  {said[len(margin) :]}", color=True)
        if each.advice is not None:
            click.echo(wrapped(f"→ {inert(each.advice)}", margin, "  "))
    counts = Counter(each.level.value for each in findings)
    told = [plural(counts[level], level) for level in ("problem", "warning") if counts[level]]
    say("\n" + (", ".join(told) if told else "everything is well"), style="bold" if told else "green")
