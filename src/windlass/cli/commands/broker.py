"""`windlass broker`: declare what a broker needs, check it, and go back to the database alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands.bulk import confirm_count
from windlass.cli.exit_codes import REFUSED
from windlass.cli.parse.mistakes import HelpfulGroup
from windlass.cli.parse.options import json_option
from windlass.cli.parse.program_argument import program_argument
from windlass.cli.parse.store_option import call_store, load_settings, url_option
from windlass.cli.show.output import (
    escape_text,
    format_count,
    name_command,
    print_detail,
    print_json,
    print_note,
    print_text,
    to_click_style,
    wrap,
)

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.model.delivery import DeliveryMode
    from windlass.model.rows import QueueRow
    from windlass.store.protocol import Store
    from windlass.transport.protocol import Finding, JobDispatcher, QueueDepth

MOST_COUNTED = 10_000  # rows of the outbox
LATE = 60.0  # seconds that a row of the outbox may be due: a relay that lives publishes within one
GROUP_SIZE = re.compile(r"group_size=[^&]*")


@click.group(cls=HelpfulGroup, short_help="Set up and check the broker that carries deliveries.")
def broker() -> None:
    """Set up and check the broker that carries deliveries.

    The setting `broker` (WINDLASS_BROKER) has its URL: amqp://… for RabbitMQ, redis://… for Redis. The store keeps the
    jobs; without the broker, workers find them by polling.
    """


# Set up


@broker.command("setup", short_help="Declare the queues, and let the store write its outbox.")
@program_argument("app")
@click.option(
    "--group-size", type=click.IntRange(1, 64), metavar="N", help="RabbitMQ: how many servers keep each quorum queue."
)
@url_option
@json_option
def setup(app: str | None, group_size: int | None, url: str | None, as_json: bool) -> None:
    """Declare every queue of the program and of the store at the broker, and let the store write its outbox.

    With APP (app.py or package.module:app), the settings and queues are those of the program. Queues that exist stay as
    they are. Repeating the command changes nothing. Jobs that are queued already are found by the workers' poll.
    """
    settings = load_settings(url, app)
    address = _with_group_size(settings, group_size)
    made = call_store(settings, lambda store: _set_up(store, settings, address, _program_queues(app)))
    if as_json:
        print_json(made)
        return
    for queue in made["made"]:
        print_text(f"queue {queue}: declared", style="green")
    for queue in made["known"]:
        print_text(f"queue {queue}: is there")
    if not made["made"] and not made["known"]:
        print_note("there is no queue yet: name the program, as in windlass broker setup app.py")
    mode = made["delivery"]
    print_text(
        f"delivery: {mode}" + (f", was {made['delivery_before'] or 'off'}" if made["changed"] else ", as it was"),
        style="green" if made["changed"] else None,
    )
    if group_size is not None:
        print_detail(
            f"write ?group_size={group_size} into the URL as well (WINDLASS_BROKER): without it, workers and relays "
            "find queues with other arguments, and are refused"
        )
    print_detail("next: windlass broker check")


async def _set_up(store: Store, settings: Settings, url: str, of_program: Collection[str]) -> dict[str, Any]:
    from windlass.methods.broker import open_broker
    from windlass.model import audit
    from windlass.model.delivery import DeliveryMode

    queues = sorted({*of_program, *(row.queue for row in await store.queues())})
    async with open_broker(url) as dispatcher:
        known = {depth.queue for depth in await dispatcher.depths(queues)}
        await dispatcher.declare(queues)
        shown = dispatcher.shown
    # After the queues are there: rows of the outbox would otherwise be published to queues that are made on the way.
    before, mode = await store.delivery(), DeliveryMode(settings.delivery)
    changed = await store.set_delivery(mode)
    if changed:
        await store.record_action(audit.DELIVERY_SET, settings.acting, "delivery", mode.value)
    return {
        "broker": shown,
        "made": [queue for queue in queues if queue not in known],
        "known": [queue for queue in queues if queue in known],
        "delivery": mode,
        "delivery_before": before,
        "changed": changed,
    }


def _program_queues(app: str | None) -> set[str]:
    if app is None:
        return set()
    from windlass.declare.program import load

    return {definition.queue for definition in load(app)._registry}


def _with_group_size(settings: Settings, size: int | None) -> str:
    """The broker's URL, with this group size."""
    from windlass.broker_address import read_broker_address
    from windlass.methods.broker import broker_url

    url = broker_url(settings)
    if size is None:
        return url
    if read_broker_address(url).kind != "rabbitmq":
        raise click.UsageError("--group-size is for RabbitMQ's quorum queues, and this broker is Redis; leave it out")
    given = f"group_size={size}"
    if GROUP_SIZE.search(url):
        return GROUP_SIZE.sub(given, url)
    return f"{url}{'&' if '?' in url else '?'}{given}"


# Check


@broker.command("check", short_help="Check the broker, its queues and the outbox.")
@program_argument("app")
@url_option
@json_option
@click.pass_context
def check(ctx: click.Context, app: str | None, url: str | None, as_json: bool) -> None:
    """Check the broker, its queues, their consumers, and the outbox; what is wrong comes first, each with its repair.

    It only reads. Exit 1 when something is not as it should be.
    """
    from windlass.broker_address import masked_broker
    from windlass.methods.broker import broker_url

    settings = load_settings(url, app)
    address = broker_url(settings)
    found = call_store(settings, lambda store: examine(store, settings, address, _program_queues(app)))
    findings = sorted((_with_program(each, app) for each in found), key=lambda each: each.ok)
    healthy = all(finding.ok for finding in findings)
    if as_json:
        print_json({"broker": masked_broker(address), "healthy": healthy, "findings": findings})
    else:
        _print_findings(findings)
    ctx.exit(0 if healthy else REFUSED)


async def examine(store: Store, settings: Settings, url: str, of_program: Collection[str]) -> list[Finding]:
    """What the broker and the store say; a broker that does not answer is a finding, too."""
    from windlass.errors import BrokerError
    from windlass.methods.broker import open_broker
    from windlass.transport.protocol import Finding

    rows = await store.queues()
    queues = sorted({*of_program, *(row.queue for row in rows)})
    found = [_delivery_finding(await store.delivery(), settings), await _outbox_finding(store)]
    found += [finding for row in rows if (finding := _undelivered_finding(row, settings.undelivered))]
    try:
        async with open_broker(url) as dispatcher:
            found += await dispatcher.check(queues)
            found += [_consumer_finding(depth) for depth in await dispatcher.depths(queues)]
            found.append(await _dead_letters_finding(dispatcher))
    except BrokerError as error:
        advice = "start it, or correct broker (WINDLASS_BROKER); meanwhile workers poll the database"
        found.append(Finding(ok=False, subject="connection", text=str(error), advice=advice))
    return found


def _delivery_finding(mode: DeliveryMode | None, settings: Settings) -> Finding:
    from windlass.transport.protocol import Finding

    if mode == settings.delivery:
        return Finding(ok=True, subject="delivery", text=f"the store writes its outbox; delivery is {mode}")
    if mode is None:
        text = "a broker is set, and the store writes no outbox: no job is published, and workers poll"
    else:
        text = f"the store is set to {mode}, and the setting delivery is {settings.delivery}"
    return Finding(ok=False, subject="delivery", text=text, advice="windlass broker setup")


async def _outbox_finding(store: Store) -> Finding:
    from windlass.clock import format_span
    from windlass.transport.protocol import Finding

    count, age = await store.outbox_size(MOST_COUNTED)
    counted = f"{count:,}{' or more' if count >= MOST_COUNTED else ''} row{'' if count == 1 else 's'} due"
    if age is None or age < LATE:
        return Finding(ok=True, subject="outbox", text=counted)
    text = f"{counted}, the oldest for {format_span(age)}: no relay publishes them, or the broker refuses them"
    return Finding(ok=False, subject="outbox", text=text, advice="windlass relay app.py, or a worker with relay=on")


def _undelivered_finding(row: QueueRow, limit: float) -> Finding | None:
    from windlass.clock import format_span
    from windlass.transport.protocol import Finding

    if row.lag is None or row.lag < limit:
        return None
    text = (
        f"its oldest due job has waited for {format_span(row.lag)}, and a job is undelivered after {format_span(limit)}"
    )
    advice = f"windlass jobs list queue:{row.queue} state:queued shows why it waits"
    return Finding(ok=False, subject=f"queue {row.queue}", text=text, advice=advice)


def _consumer_finding(depth: QueueDepth) -> Finding:
    from windlass.transport.protocol import Finding

    sent = "how many are not acknowledged is not known"
    if depth.unacknowledged is not None:
        sent = f"{depth.unacknowledged:,} not acknowledged"
    held = f"{depth.ready:,} ready, {sent}"
    if depth.consumers:
        text = f"{format_count(depth.consumers, 'consumer')}, {held}"
        return Finding(ok=True, subject=f"queue {depth.queue}", text=text)
    text = f"no worker consumes it; {held}"
    advice = f"windlass worker app.py --queue {depth.queue}, with the setting broker"
    return Finding(ok=False, subject=f"queue {depth.queue}", text=text, advice=advice)


async def _dead_letters_finding(dispatcher: JobDispatcher) -> Finding:
    from windlass.transport.protocol import Finding

    count = await dispatcher.count_dead_letters()
    letters = f"{count:,} message{'' if count == 1 else 's'} in the dead-letter queue"
    return Finding(ok=True, subject="dead letters", text=letters, advice="windlass dead" if count else None)


def _with_program(finding: Finding, app: str | None) -> Finding:
    """The advice as it can be typed: without the program, a setup does not know the queues that hold no job yet."""
    import msgspec

    if app is None or finding.advice is None:
        return finding
    advice = finding.advice.replace("app.py", app).replace("windlass broker setup", f"windlass broker setup {app}")
    return msgspec.structs.replace(finding, advice=advice)


def _print_findings(findings: Iterable[Finding]) -> None:
    from windlass.cli.show.live_log import uses_colour

    on_terminal = sys.stdout.isatty()
    shown = list(findings)
    width = max(len(each.subject) for each in shown)
    margin = " " * (len("problem") + 2 + width + 2)
    for each in shown:
        level = "ok" if each.ok else "problem"
        advice = name_command(each.advice or "")
        if not on_terminal:
            click.echo("\t".join(map(escape_text, (level, each.subject, each.text, advice))))
            continue
        style = to_click_style("green" if each.ok else "bold red")
        word = click.style(f"{level:<7}", **style) if uses_colour(sys.stdout) else f"{level:<7}"
        click.echo(
            f"{word}  {each.subject:<{width}}  {wrap(escape_text(each.text), margin)[len(margin) :]}", color=True
        )
        if advice:
            click.echo(wrap(f"→ {escape_text(advice)}", margin, "  "))
    if on_terminal:
        wrong = sum(not each.ok for each in shown)
        print_text(
            f"\n{format_count(wrong, 'problem') if wrong else 'everything is well'}", style="bold" if wrong else "green"
        )


# Go back


@broker.command("off", short_help="Go back to the database alone.")
@program_argument("app")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@url_option
@json_option
@click.pass_context
def off(ctx: click.Context, app: str | None, yes: bool, url: str | None, as_json: bool) -> None:
    """Let the store write no outbox any more, and empty it. Jobs stay, and workers find them by polling.

    It needs no broker. Remove the setting broker (WINDLASS_BROKER) from programs and workers as well. What the broker
    still holds can be deleted there: each of its messages names a job that the store has.
    """
    settings = load_settings(url, app)
    mode, (rows, _) = call_store(settings, _read_delivery)
    if mode is not None and not yes:
        counted = f"{rows:,}{' or more' if rows >= MOST_COUNTED else ''}"
        print_text(f"the store delivers by {mode}; its outbox has {counted} due rows, which are deleted", err=True)
        print_text("  no job is deleted: workers find them by polling", err=True)
        confirm_count(ctx, 1)
    changed = call_store(settings, lambda store: _switch_off(store, settings.acting))
    if as_json:
        print_json({"delivery": None, "delivery_before": mode, "changed": changed})
        return
    print_text("delivery is off: workers poll the database" if changed else "delivery was off already", style="green")
    if settings.broker is not None:
        print_note(f"the setting broker is still there ({settings.origins.get('broker', 'argument')}): remove it")


async def _read_delivery(store: Store) -> tuple[DeliveryMode | None, tuple[int, float | None]]:
    return await store.delivery(), await store.outbox_size(MOST_COUNTED)


async def _switch_off(store: Store, actor: str) -> bool:
    from windlass.model import audit

    changed = await store.set_delivery(None)
    if changed:
        await store.record_action(audit.DELIVERY_SET, actor, "delivery", "off")
    return changed
