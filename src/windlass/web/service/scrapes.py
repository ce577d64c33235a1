"""What Prometheus and an orchestrator ask the web server: the metrics of the store, and whether it answered lately."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from windlass.errors import BrokerError, ConfigError, WindlassError
from windlass.model.rows import COUNTED
from windlass.observe.endpoint import INSTALL

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.observe.store_metrics import BrokerNow, StoreNow
    from windlass.store.protocol import Store

READ_FOR = 5.0  # seconds for which one read answers all scrapes
ANSWERED_FOR = 2.0  # seconds for which one answer of the store counts for all probes
WITHIN = 3.0  # seconds for the store to answer a probe, and for the broker to answer a scrape


class Scrapes:
    """One read for all scrapes of a few seconds, and one question for all probes."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._reading = asyncio.Lock()
        self._read_at = self._answered_at = float("-inf")
        self._now: StoreNow | None = None
        self._probing = asyncio.Lock()

    async def write(self, accept: str) -> tuple[str, bytes]:
        """The type of content and the text of an answer to Prometheus."""
        try:
            from prometheus_client.exposition import choose_encoder

            from windlass.observe.store_metrics import make_registry
        except ImportError:
            raise ConfigError(INSTALL) from None
        now = await self._read()
        encode, kind = choose_encoder(accept)
        return kind, await asyncio.to_thread(lambda: encode(make_registry(now)))

    async def _read(self) -> StoreNow:
        async with self._reading:
            time = asyncio.get_running_loop().time()
            if self._now is None or time - self._read_at > READ_FOR:
                now = await self._app._client.aask(read_store)
                address = self._app.settings.broker
                broker = None if address is None else await read_broker(address, [row.queue for row in now.queues])
                self._now = msgspec.structs.replace(now, broker=broker)
                self._read_at = time
            return self._now

    async def explain_unready(self) -> str | None:
        """Why this server is not ready; None: the store answered in the last seconds."""
        async with self._probing:
            loop = asyncio.get_running_loop()
            if loop.time() - self._answered_at <= ANSWERED_FOR:
                return None
            try:
                async with asyncio.timeout(WITHIN):
                    await self._app._client.aask(lambda store: store.now())
            except (WindlassError, TimeoutError) as error:
                return f"the store does not answer ({type(error).__name__})"  # its text may name the host and user
            self._answered_at = loop.time()
            return None


async def read_store(store: Store) -> StoreNow:
    """What the store knows, each number counted up to a bound."""
    from windlass.methods.reads import read_queues
    from windlass.observe.store_metrics import StoreNow

    writes_outbox = await store.delivery() is not None
    due, lag = await store.outbox_size(COUNTED) if writes_outbox else (None, None)
    return StoreNow(
        queues=await read_queues(store),
        phases=await store.phases(),
        workers=await store.workers(),
        last_hour=await store.figures(since=3600.0, step=3600.0),
        last_minute=await store.figures(since=60.0, step=60.0),
        oldest_snapshot=await store.oldest_snapshot(),
        outbox_due=due,
        outbox_lag=lag or 0.0,
    )


async def read_broker(address: str, queues: Sequence[str]) -> BrokerNow | None:
    """What the broker holds now; None: this server has no client for it.

    One connection per read: whether the broker accepts one is what a scrape asks.
    """
    from windlass.methods.broker import open_broker
    from windlass.observe.store_metrics import MOST_QUEUES, BrokerNow

    now = BrokerNow(is_up=False)
    try:
        async with asyncio.timeout(WITHIN), open_broker(address) as broker:
            now = BrokerNow(is_up=True, dead_letters=await broker.count_dead_letters())
            # One question for each of up to 200 queues: a broker that is too slow for them is up all the same.
            depths = await broker.depths(queues[:MOST_QUEUES])
            now = msgspec.structs.replace(
                now,
                ready={each.queue: each.ready for each in depths},
                unacknowledged={each.queue: each.unacknowledged for each in depths if each.unacknowledged is not None},
                consumers={each.queue: each.consumers for each in depths},
            )
    except (BrokerError, TimeoutError):
        return now
    except ConfigError:  # no client of the broker is installed here, and what the store knows is told all the same
        return None
    return now
