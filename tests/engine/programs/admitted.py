"""Jobs that take tokens, hold a bucket back and cost something, in every isolation."""

from __future__ import annotations

import os
import time
from decimal import Decimal

from windlass import Context, Retry, SyncContext, Windlass, fixed

app = Windlass("sqlite:////nowhere/jobs.db")  # a story gives it a database
app.rate("wiki", 20, every="1s")

INSERT = "INSERT INTO effects (n) VALUES ($1)"
CALLS = 3


@app.job
async def calls_in_coroutine(ctx: Context) -> list[float]:
    return await calls(ctx)


@app.job
def calls_in_thread(ctx: SyncContext) -> list[float]:
    return blocking_calls(ctx)


@app.job(isolation="process")
async def calls_in_process(ctx: Context) -> list[float]:
    return await calls(ctx)


@app.job(isolation="process")
def calls_in_process_thread(ctx: SyncContext) -> list[float]:
    return blocking_calls(ctx)


async def calls(ctx: Context) -> list[float]:
    times = []
    for _ in range(CALLS):
        await ctx.acquire("wiki")
        times.append(time.time())
    return times


def blocking_calls(ctx: SyncContext) -> list[float]:
    times = []
    for _ in range(CALLS):
        ctx.acquire("wiki")
        times.append(time.time())
    return times


@app.job
async def holds_in_coroutine(ctx: Context) -> None:
    await ctx.hold_back("wiki", "10m", key=ctx.job.type)


@app.job
def holds_in_thread(ctx: SyncContext) -> None:
    ctx.hold_back("wiki", "10m", key=ctx.job.type)


@app.job(isolation="process")
async def holds_in_process(ctx: Context) -> None:
    await ctx.hold_back("wiki", "10m", key=ctx.job.type)


@app.job(isolation="process", max_attempts=1)
def retries_in_process(ctx: SyncContext) -> None:
    raise Retry("429", after="10m", bucket=f"wiki:{ctx.job.type}")


@app.job
async def costs_in_coroutine(ctx: Context) -> int:
    return cost(ctx)


@app.job
def costs_in_thread(ctx: SyncContext) -> int:
    return cost(ctx)


@app.job(isolation="process")
async def costs_in_process(ctx: Context) -> int:
    return cost(ctx)


@app.job(isolation="process")
def costs_in_process_transaction(ctx: SyncContext) -> int:
    with ctx.transaction() as tx:
        tx.execute(INSERT, 1)
        return cost(ctx)


@app.job(isolation="process", retry=fixed(0))
def costs_and_crashes(ctx: SyncContext) -> int:
    ctx.cost(3)
    if ctx.job.crashes == 0:
        os._exit(3)
    return ctx.spent


def cost(ctx: Context | SyncContext) -> int:
    ctx.cost(0.5)
    ctx.cost(Decimal("0.7"))
    ctx.cost(2)
    return ctx.spent


@app.job(isolation="process")
async def misfits_in_process(ctx: Context) -> int:
    async with ctx.transaction() as tx:
        await tx.execute(INSERT, 1)
    return "one"  # type: ignore[return-value]
