"""Celery's side of `broker.py`, in an environment that has Celery: the program of its worker, and its sender.

As Windlass delivers: a durable classic queue, persistent messages, publisher confirms, an acknowledgement after the
task, and no result.
"""

from __future__ import annotations

import os
import sys

from celery import Celery  # type: ignore[import-not-found]

app = Celery("bench", broker=os.environ["BENCH_AMQP_URL"])
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    task_default_queue="bench-celery",
    task_acks_late=True,
    task_ignore_result=True,
)
ticks = os.open(os.environ["BENCH_TICKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@app.task(name="noop")  # type: ignore[untyped-decorator]
def noop(number: int) -> None:
    os.write(ticks, b".")


def send(count: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(count):
            noop.apply_async((number,), producer=producer)


if __name__ == "__main__":
    send(1)  # the connection is open when the others are sent
    print("ready", flush=True)
    send(int(sys.stdin.readline()))
