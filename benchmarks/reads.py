"""What PostgreSQL does for each read of the API and of the dashboard, with a million jobs: `make bench-reads`.

Each shape is a database of its own. A read is what one request asks the store, statement by statement. Its time is
PostgreSQL's own (EXPLAIN ANALYZE), the best of three; beside it are the pages that it touched.

    make bench-reads ARGS="--only dead --reads queues,tenants"
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg

from database import fresh_database, open_connection
from read_shapes import SHAPES
from windlass import Windlass
from windlass.errors import ReadTimeout
from windlass.store.postgres.connections.pool import connect
from windlass.web.service.scrapes import read_store

if TYPE_CHECKING:
    from windlass.store.protocol import Store

Read = Callable[[Windlass], Awaitable[object]]
FILTERS = (
    *("", "state:dead", "state:waiting", "state:failed", "state:running", "state:queued", "state:cancelled"),
    *("state:succeeded", 'queue:"queue 3"', "queue:nowhere", 'tenant:"tenant 7"', "tenant:nowhere"),
    *('type:"type 3"', "type:nowhere", 'state:dead queue:"queue 3"', "key:order-1000", "key:nothing"),
    *(
        "fingerprint:aaaaaaaaaaa3",
        "fingerprint:bbbbbbbbbbb3",
        'state:dead error:"answer 3"',
        "state:dead error:nothing",
    ),
    *("reason:exhausted", "age:1h..", "attempt:1..", 'phase:"queue 3"', "phase:nowhere", "pipeline:site"),
)
READS: dict[str, Read] = {
    "counts": lambda app: app.acounts(),
    "queues": lambda app: app.aqueues(idle=True),
    "tenants": lambda app: app.atenants(),
    "phases": lambda app: app.aphases(),
    "overview 1h": lambda app: app.aoverview("1h"),
    "overview 1d": lambda app: app.aoverview("1d"),
    "health": lambda app: app.ahealth(),
    "figures 1h": lambda app: app.afigures(since="1h"),
    "depths 1h": lambda app: app.adepths(since="1h"),
    "depths 6h": lambda app: app.adepths(since="6h"),
    "workers": lambda app: app.aworkers(),
    "limits": lambda app: app.alimits(),
    "errors 1h": lambda app: app.aerrors("1h"),
    "errors 30d of a tenant": lambda app: app.aerrors("30d", tenant="tenant 7"),
    "audit": lambda app: app.aaudit(),
    "audit by action": lambda app: app.aaudit(action="JOB_DEAD"),
    "audit of a tenant": lambda app: app.aaudit(tenant="tenant 7"),
    "metrics": lambda app: app._client.aask(read_store),
    "suggest queue:": lambda app: app.asuggest("queue:"),
    "suggest error:": lambda app: app.asuggest("state:dead error:"),
    **{f"jobs {text}": partial(Windlass.ajobs, filter=text) for text in FILTERS},
    **{f"jobs of a tenant {text}": partial(Windlass.ajobs, filter=text, tenant="tenant 7") for text in FILTERS[:8]},
    **{f"facets {text}": partial(Windlass.afacets, filter=text) for text in FILTERS[:16]},
}
TRIES = 3


async def measure(loads: tuple[str, ...], jobs: int, reads: list[str]) -> None:
    """Print the cost of each read, in a new database."""
    async with fresh_database() as url:
        async with open_connection(url) as loading:
            await loading.execute("SET statement_timeout = 0")
            for load in loads:
                await loading.execute(load.replace("$1::int", str(jobs)), timeout=600)
            await loading.execute("VACUUM ANALYZE", timeout=600)
        await measure_reads(url, reads)


async def measure_reads(url: str, reads: list[str]) -> None:
    app = Windlass(url)
    statements = record(await app._client.aask(_itself))
    connection = await connect(url)  # with the settings of the engine's sessions
    try:
        for name in reads:
            statements.clear()
            try:
                await READS[name](app)
            except ReadTimeout:
                print(f"  {name:<42} stopped by read_timeout", flush=True)
                continue
            costs = [(*await explain(connection, sql, args), sql) for sql, args in list(statements)]
            milliseconds, pages = sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)
            print(f"  {name:<42}{milliseconds:>9.1f} ms{pages:>10,} pages", flush=True)
    finally:
        await connection.close()
        await app.aclose()


async def _itself(store: Store) -> Any:
    return store


def record(store: Any) -> list[tuple[str, tuple[Any, ...]]]:
    """The statements that the store runs from now on, with their arguments."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    fetch, fetch_list = store._fetch, store._fetch_list

    async def recorded(sql: str, *args: Any) -> Any:
        found.append((sql, args))
        return await fetch(sql, *args)

    async def recorded_list(what: str, sql: str, *args: Any) -> Any:
        found.append((sql, args))
        return await fetch_list(what, sql, *args)

    store._fetch, store._fetch_list = recorded, recorded_list
    return found


async def explain(connection: asyncpg.Connection[Any], sql: str, args: tuple[Any, ...]) -> tuple[float, int]:
    """Milliseconds and pages of the cheapest of some runs."""
    costs = []
    for _ in range(TRIES):
        answer = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}", *args)
        (found,) = json.loads(answer)
        pages = found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"]
        costs.append((found["Planning Time"] + found["Execution Time"], int(pages)))
    return min(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--only", choices=SHAPES, help="one shape")
    parser.add_argument("--reads", default="", help="only reads whose names begin with one of these: queues,jobs")
    parser.add_argument("--url", help="a database that is loaded already")
    given = parser.parse_args()
    reads = [name for name in READS if name.startswith(tuple(given.reads.split(",")))]
    if given.url:
        asyncio.run(measure_reads(given.url, reads))
        return
    for shape, loads in SHAPES.items():
        if given.only in (None, shape):
            print(f"{given.jobs:,} jobs: {shape}", flush=True)
            asyncio.run(measure(loads, given.jobs, reads))


if __name__ == "__main__":
    main()
