"""The program of `windlass demo`: small jobs with every kind of fate. Short leases, so that a rescue is soon seen."""

from __future__ import annotations

import asyncio

from windlass import Context, Dead, Windlass, fixed

FLAKY_ATTEMPTS = 3  # the third one succeeds
HOPELESS_ATTEMPTS = 2

app = Windlass(
    pace="eager",
    lease="3s",
    beat="500ms",
    margin="500ms",
    sweep="500ms",
    poll="250ms",
    grace="2s",
    concurrency=4,
)


@app.job
async def haul(load: int) -> int:
    """An ordinary job."""
    await asyncio.sleep(0.15)
    return load * 2


@app.job(priority=10)
async def urgent(name: str) -> str:
    """Goes before all that waits."""
    await asyncio.sleep(0.05)
    return f"{name} first"


@app.job(retry=fixed("500ms"), max_attempts=FLAKY_ATTEMPTS)
async def flaky(ctx: Context, number: int) -> str:
    """Fails twice, and is retried."""
    await asyncio.sleep(0.1)
    if ctx.attempt < FLAKY_ATTEMPTS:
        raise ConnectionError(f"the other side of {number} hung up")
    return f"{number} got through"


@app.job(retry=fixed("500ms"), max_attempts=HOPELESS_ATTEMPTS)
async def hopeless() -> None:
    """Fails until its attempts are used up."""
    raise ValueError("this never works")


@app.job
async def refused() -> None:
    """Knows that no retry can help."""
    raise Dead("the customer is gone")


@app.job(priority=5)
async def voyage(seconds: float) -> str:
    """Long enough for its worker to be killed meanwhile."""
    await asyncio.sleep(seconds)
    return "arrived"
