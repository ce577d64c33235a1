"""`windlass limits hold` and `release`: stop giving slots and tokens of a key for a time, and end such a hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.gate_options import SOON, suggest_name
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import print_detail, print_json, print_note, print_text

if TYPE_CHECKING:
    from windlass.model.admission import LimitRow
    from windlass.store.protocol import Store


@click.command("hold", short_help="Give no slot and no token of a key for a time.")
@click.argument("key", shell_complete=complete_name("limit"))
@click.argument("time")
@store_options
def hold(key: str, time: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Give no slot and no token of KEY for a TIME such as 2m.

    Running jobs finish. A longer hold that is in effect stays; `limits release` ends it. A hold lasts a day at most:
    for longer, pause a gate.
    """
    from windlass.clock import spell
    from windlass.model.admission import round_seconds

    span = _parse_duration(time)
    settings = load_settings(url, app)
    held = call_store(settings, lambda store: _hold(store, key, span, settings.acting))
    if as_json:
        print_json({"key": key, "held": held})
        return
    print_text(f"{key} is held back for {spell(round_seconds(held))}", style="yellow")
    print_detail(f"running jobs finish; no slot and no token is given until then; {SOON}")
    print_detail(f"→ windlass limits release {join_words([key])}", style="dim")
    if held > span + 1:
        print_note(f"a longer hold was in effect already, and stays; {spell(span)} changed nothing")


def _parse_duration(time: str) -> float:
    from windlass.clock import seconds, spell
    from windlass.errors import ConfigError
    from windlass.policy.limit import LONGEST_HOLD

    try:
        span = seconds(time)
    except ConfigError:
        raise click.UsageError(f"TIME: {time!r} is not a duration; write it like 30s, 2m or 1h30m") from None
    if span <= 0:
        raise click.UsageError(f"TIME: {time!r} is no duration above 0; write it like 30s or 2m")
    if span > LONGEST_HOLD:
        raise click.UsageError(
            f"TIME: {time!r} is more than {spell(LONGEST_HOLD)}, the longest hold; pause instead: windlass gates pause "
            "--type …"
        )
    return span


async def _hold(store: Store, key: str, span: float, actor: str) -> float:
    from windlass.methods.admin import refuse_bare_name

    rows = await store.limits()
    refuse_bare_name(key, rows)
    await store.hold_back(key, span, actor=actor)
    suggest_name("key", key, [row.key for row in rows])
    return await store.held_for(key)


@click.command("release", short_help="End a hold of a key.")
@click.argument("key", shell_complete=complete_name("limit"))
@store_options
def release(key: str, app: str | None, url: str | None, as_json: bool) -> None:
    """End a hold of KEY that `limits hold` or a handler began.

    A rate continues at its pace: its next token may be as far away as if all tokens had just been taken. Where KEY is
    not held back, nothing changes.
    """
    settings = load_settings(url, app)
    released, row = call_store(settings, lambda store: _release(store, key, settings.acting))
    if as_json:
        print_json({"key": key, "released": released})
    elif released:
        print_text(f"{key} is no longer held back", style="green")
        print_detail(f"the next job may start: {row.describe_room()}; {SOON}")
    if not released:
        print_note(f"{key} is not held back")


async def _release(store: Store, key: str, actor: str) -> tuple[bool, LimitRow]:
    from windlass.methods.reads import unknown_key

    released = await store.end_hold(key, actor=actor)
    for row in await store.limits(key):
        if row.key == key:
            return released, row
    raise await unknown_key(store, key)
