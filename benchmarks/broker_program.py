"""Windlass's side of `broker.py`: the program of its worker, and its sender."""

from __future__ import annotations

import os
import sys

from windlass import Windlass

BATCH = 1_000

app = Windlass()
ticks = os.open(os.environ["BENCH_TICKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@app.job
async def noop(number: int) -> None:
    os.write(ticks, b".")


def send(count: int) -> None:
    for start in range(0, count, BATCH):
        app.enqueue_many(noop.call(number) for number in range(start, min(start + BATCH, count)))


if __name__ == "__main__":
    send(1)
    print("ready", flush=True)
    send(int(sys.stdin.readline()))
