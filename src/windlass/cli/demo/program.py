"""The program of `windlass demo`: a small shop with every kind of failure. Its leases are short, for a quick rescue."""

from __future__ import annotations

import asyncio
import random

from windlass import Context, Dead, Windlass, fixed, limit, phase

SYNC_ATTEMPTS = 3  # the third one succeeds
FEED_ATTEMPTS = 2
MAX_CRASHES = 3
BROKEN = "broken.raw"
FRAMES = 25  # of a film, a tenth of a second each
UNLUCKY = 1004  # the order that fails once in its second phase
SHIPPED = "picked, packed, shipped"
AT_ONCE = 2  # prices of one domain that are fetched at a time
BEAT = 2  # seconds

app = Windlass(
    pace="eager",
    lease="3s",
    beat="500ms",
    margin="500ms",
    sweep="500ms",
    health="2s",
    poll="250ms",
    grace="1s",
    cancel_grace="1s",
    timeout="30s",
    concurrency=6,
    pool_size=2,
    max_attempts=4,
    max_crashes=MAX_CRASHES,
)


@app.job(queue="mail", priority=-10)
async def newsletter(reader: int) -> str:
    """A job that can wait."""
    await asyncio.sleep(random.uniform(0.1, 0.25))
    return f"sent to reader {reader}"


@app.job(queue="mail", priority=10)
async def password_reset(user: str) -> str:
    """A user waits for it: it starts before every newsletter."""
    await asyncio.sleep(0.08)
    return f"sent to {user}"


@app.job(queue="shop", retry=fixed("600ms"), max_attempts=SYNC_ATTEMPTS)
async def sync_stock(ctx: Context, shop: str) -> str:
    """Fails twice, and is retried."""
    await asyncio.sleep(0.2)
    if ctx.attempt < SYNC_ATTEMPTS:
        raise ConnectionError(f"{shop} hung up")
    return f"{shop} got through"


@app.job(queue="shop", timeout="1s", retry=fixed("500ms"))
async def ask_partner(ctx: Context, partner: str) -> str:
    """Hangs at first: the timeout stops it, its processor is in error for a while, and the retry succeeds."""
    await asyncio.sleep(60 if ctx.attempt == 1 else 0.2)
    return f"{partner} answered"


@app.job(queue="shop", retry=fixed("800ms"), max_attempts=FEED_ATTEMPTS)
async def import_feed(feed: str) -> None:
    """Fails until its attempts are used up."""
    await asyncio.sleep(0.1)
    raise ValueError(f"{feed}, line 7, is no product")


@app.job(queue="shop")
async def refund(order: int) -> None:
    """Raises `Dead`, since no retry can help."""
    await asyncio.sleep(0.1)
    raise Dead(f"the customer of order {order} is gone")


@app.job(queue="media", isolation="process", retry=fixed("300ms"))
def thumbnail(picture: str) -> str:
    """Runs in its own process, since the library that it calls may crash."""
    if picture == BROKEN:
        _segfault()
    return f"{picture}.thumb"


@app.job(queue="media")
async def render(ctx: Context, film: str) -> str:
    """Runs long enough for its worker to be killed meanwhile."""
    for frame in range(FRAMES):
        await asyncio.sleep(0.1)
        ctx.progress(frame + 1, total=FRAMES)
    return f"{film} is rendered"


@app.job(queue="shop", limits=[limit("domain", AT_ONCE)])
async def fetch_price(domain: str, product: str) -> str:
    """However many workers there are, no domain gets more than two requests at a time."""
    await asyncio.sleep(random.uniform(0.3, 0.5))
    return f"{domain} sells {product}"


@app.job(queue="shop", priority=20)
async def beat() -> str:
    """Enqueued by a schedule."""
    await asyncio.sleep(0.05)
    return "all is well"


heartbeat = app.schedule("heartbeat", beat.call(), every=BEAT)


@app.job(queue="shop")
async def pick(order: int) -> str:
    """The first phase of an order."""
    await asyncio.sleep(random.uniform(0.3, 0.6))
    return "picked"


@app.job(queue="shop", retry=fixed("500ms"))
async def pack(ctx: Context, order: int) -> str:
    """The second phase. A retry repeats only this phase: nothing is picked twice."""
    await asyncio.sleep(0.3)
    if order == UNLUCKY and ctx.attempt == 1:
        raise LookupError(f"no tape for order {order}")
    return f"{ctx.previous}, packed"


@app.job(queue="shop")
async def ship(ctx: Context) -> str:
    """The last phase; its result is the result of the order."""
    await asyncio.sleep(random.uniform(0.2, 0.5))
    return f"{ctx.previous}, shipped"


order = app.pipeline("order", pick, phase(pack, processors=1), ship)


def _segfault() -> None:
    """A real segmentation fault, as a broken C library causes it, but without a core file on the user's disk."""
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)
