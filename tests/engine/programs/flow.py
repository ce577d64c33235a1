"""Jobs that spawn, wait, step, sleep and are signalled, all of it in a process of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from windlass import Context, JobHandler, SyncContext, Windlass, fixed, limit

app = Windlass("sqlite:////nowhere/jobs.db")  # a story gives it a database

INSERT = "INSERT INTO effects (n) VALUES ($1)"


@app.job
async def double(n: int, padding: str = "") -> int:
    return 2 * n


@app.job(isolation="process")
class Apart(JobHandler):
    async def handle(self, ctx: Context, n: int) -> list[int]:
        return [n, os.getpid()]


@app.job(isolation="process")
async def coroutine(ctx: Context) -> list[Any]:
    async def write() -> int:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
        return os.getpid()

    kids = ctx.spawn_many("kid", [double.call(n) for n in range(3)])
    results = await ctx.wait(kids)
    where = await ctx.step("write", write)
    await ctx.sleep("nap", 0.01)
    word = await ctx.wait_signal("word")
    ctx.spawn("last", double.call(50))
    async with ctx.transaction() as tx:
        await tx.execute(INSERT, 2)
    return [results, where != os.getppid(), word, ctx.attempt]


@app.job(isolation="process")
def plain(ctx: SyncContext) -> list[Any]:
    def write() -> None:
        with ctx.transaction() as tx:
            tx.execute(INSERT, 1)

    kids = ctx.spawn_many("kid", [double.call(n) for n in range(3)])
    results = ctx.wait(kids)
    ctx.step("write", write)
    ctx.sleep("nap", 0.01)
    word = ctx.wait_signal("word")
    ctx.spawn("last", double.call(50))
    with ctx.transaction() as tx:
        tx.execute(INSERT, 2)
    return [results, True, word, ctx.attempt]


@app.job(isolation="process")
async def wide(ctx: Context, count: int, padding: int) -> int:
    return sum(await ctx.wait(ctx.spawn_many("kid", [double.call(n, "x" * padding) for n in range(count)])))


@app.job(isolation="process", retry=fixed(0))
def crashes(ctx: SyncContext, ledger: str) -> str:
    """Its process dies after the step, at the first run."""
    word = ctx.step("charge", charge, ledger)
    if ctx.job.crashes == 0:
        os._exit(3)
    return word


def charge(ledger: str) -> str:
    with Path(ledger).open("a") as file:
        file.write("charged\n")
    return "charged"


@app.job(isolation="process", limits=[limit("fetching", 1)])
def fetch(ctx: SyncContext, domain: str) -> list[str] | None:
    with ctx.transaction() as tx:  # the move to the next phase is written right here
        tx.execute(INSERT, 1)
    return ctx.job.limits


@app.job(isolation="process", limits=[limit("domain", 1)])
def parse(ctx: SyncContext, domain: str) -> list[Any]:
    ctx.spawn("kid", counted.call(3))
    return [ctx.previous, ctx.job.limits]


@app.job(limits=[limit("n", 2)])
async def counted(ctx: Context, n: int) -> list[str] | None:
    return ctx.job.limits


site = app.pipeline("site", fetch, parse)
