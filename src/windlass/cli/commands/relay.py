"""`windlass relay`: publishes the outbox of a database to its broker, in a process of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from windlass.cli.exit_codes import REFUSED
from windlass.cli.parse.options import log_level_option
from windlass.cli.parse.program_argument import program_argument
from windlass.cli.parse.store_option import call_store, load_settings, url_option
from windlass.cli.show.output import format_count, print_text

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.store.protocol import Store
    from windlass.transport.relay import RelayRound

log = logging.getLogger("windlass")

LOG_EVERY = 60.0  # seconds between two lines about what was published


@click.command(short_help="Publish the outbox to the broker.")
@program_argument("app")
@click.option("--once", is_flag=True, help="Publish what is due, and exit.")
@log_level_option
@url_option
@click.pass_context
def relay(ctx: click.Context, app: str | None, once: bool, log_level: str, url: str | None) -> None:
    """Publish the jobs in the store's outbox to the broker, until SIGTERM or Ctrl-C.

    Workers do the same unless their setting relay is off, so that a process of its own is for fleets whose workers
    should not. Any number of relays may run. While the broker or the database is away, it tries again, and
    logs that once.

    With --once, it publishes what is due and prints how much; exit 1 when the broker did not confirm all of it.
    """
    from windlass.broker_address import masked_broker
    from windlass.methods.broker import broker_url
    from windlass.observe.logs import set_up
    from windlass.store import masked

    settings = load_settings(url, app)
    broker = broker_url(settings)
    if once:
        done = call_store(settings, lambda store: _drain(store, broker))
        buried = f", {format_count(done.buried, 'copy').replace('copys', 'copies')} of dead jobs" if done.buried else ""
        left = f"; {format_count(done.unconfirmed, 'row')} not confirmed, tried again later" if done.unconfirmed else ""
        print_text(f"{format_count(done.published, 'job')} published{buried}{left}")
        ctx.exit(REFUSED if done.unconfirmed else 0)
    set_up(log_level)
    _run(settings, f"relay from {masked(settings.url)} to {masked_broker(broker)}")


async def _drain(store: Store, broker: str) -> RelayRound:
    """Rounds until none finds a due row. A row that was not confirmed is due later, so that this ends."""
    from windlass.methods.broker import open_broker
    from windlass.transport.relay import Relay, RelayRound

    published, buried, unconfirmed = 0, 0, 0
    async with open_broker(broker) as dispatcher:
        rounds = Relay(store, dispatcher)
        while (did := await rounds.round()).leased:
            published += did.published
            buried += did.buried
            unconfirmed += did.unconfirmed
    return RelayRound(published=published, buried=buried, unconfirmed=unconfirmed)


class PublishedLog:
    """One line for the first jobs that are published, and then one per minute in which there were some."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._published = self._buried = self._unconfirmed = 0
        self._next = now()

    def add(self, did: RelayRound) -> None:
        self._published += did.published
        self._buried += did.buried
        self._unconfirmed += did.unconfirmed
        if self._now() >= self._next and (self._published or self._buried or self._unconfirmed):
            self.write()

    def write(self) -> None:
        if self._published or self._buried or self._unconfirmed:
            counts = (self._published, self._buried, self._unconfirmed)
            log.info("published %d jobs and %d copies of dead jobs, %d rows not confirmed", *counts)
        self._published = self._buried = self._unconfirmed = 0
        self._next = self._now() + LOG_EVERY


def _run(settings: Settings, first_line: str) -> None:
    import asyncio
    import signal

    from windlass.clock import SystemClock
    from windlass.transport.relay import run_relay

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        log.info(first_line)
        clock = SystemClock()
        published = PublishedLog(clock.monotonic)
        await run_relay(settings, clock, stop, published.add)
        published.write()
        log.info("relay stopped")

    asyncio.run(run())
