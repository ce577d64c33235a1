"""What a type checker finds in a user's program: a wrong argument is an error before anything runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import windlass

PROGRAM = """
from typing import assert_type
from windlass import Batch, Context, JobHandle, State, SyncContext, Windlass, exponential, limit, phase, rate, unique

app = Windlass()

@app.job
def add(a: int, b: int = 2) -> int:
    return a + b

@app.job(queue="mail", retry=exponential("10s", factor=2, jitter=0.1), timeout="5m")
async def send(ctx: Context, to: str, *, subject: str) -> dict[str, str]:
    return {to: subject}

@app.job
async def plain(n: int) -> str:
    return str(n)

@app.job
def with_context(ctx: SyncContext, n: int) -> list[int]:
    with ctx.transaction() as tx:
        assert_type(tx.execute("insert into t values ($1)", n), str)
    return [n]

@app.job(on_dead=plain, on_cancelled="plain", audit="LINK_ENRICHED", unique=unique(by="link", window="1h"))
async def enrich(link: str, day: int = 1) -> str:
    return link

@app.job(unique_forever=("link", "day"), audit=False)
def once(link: str, day: int) -> None: ...

def domain_of(url: str) -> str:
    return url

@app.job(limits=[limit("domain", 2, key=domain_of), app.rate("wikidata", 5, every="1s"), rate("api", 9, every=60)])
async def crawl(ctx: Context, url: str) -> int:
    return len(url)

assert_type(crawl.options(limits={"domain": "example.org", "api": None, "wikidata": 3}).enqueue("x"), JobHandle[int])
assert_type(app.limit("export", 1, scope="tenant").name, str)
crawl.options(limits=["domain"])    # E: arg-type
crawl.options(limits={"domain": b"x"})  # E: dict-item
app.job(limits=limit("domain", 2))    # E: call-overload
limit("domain", "2")                  # E: arg-type
limit("domain", 2, key=3)             # E: arg-type
limit("domain")                       # E: call-arg
rate("api", 5, evry="1s")           # E: call-arg
app.rate("api", 5, every=[1])       # E: arg-type
assert_type(enrich.options(key="x", idempotency_key="y", unique=lambda link: link).enqueue("x").existing, bool)
assert_type(once.options(unique=False).enqueue("x", 1), JobHandle[None])
enrich.options(unique=3)    # E: arg-type
enrich.options(key=3)       # E: arg-type
app.job(on_dead=3)          # E: call-overload
app.job(audit=3)            # E: call-overload
unique(windw="1h")          # E: call-arg
assert_type(add(2, 3), int)
assert_type(add.enqueue(2, 3), JobHandle[int])
assert_type(add.enqueue(2).result(timeout=5), int)
assert_type(add.options(priority=5, delay="10m", tenant="acme").enqueue(2, b=3).result(), int)
assert_type(with_context.enqueue(1).result(), list[int])
add.enqueue("2")            # E: arg-type
add.enqueue(2, 3, 4)        # E: call-arg
add.enqueue()               # E: call-arg
add.enqueue(c=3)            # E: call-arg
add.options(prioritty=3)    # E: arg-type
add.options(priority="x")   # E: arg-type
app.job(tiemout="5m")       # E: call-overload
with_context.enqueue()      # E: call-arg
app.worker(queue="mail")    # E: call-arg
Windlass(1)                 # E: arg-type

line = app.pipeline("line", plain, phase(with_context, processors=3), add, labels={"dead": "failed"})
assert_type(line.enqueue(3).result(), int)
assert_type(line.options(priority=5).enqueue(n=3), JobHandle[int])
assert_type(app.pipeline("list", plain, phase(add)).enqueue(3).result(), object)
line.enqueue("3")           # E: arg-type
line.enqueue()              # E: call-arg
app.pipeline("print", 1)  # E: list-item

handle = add.enqueue(1)
assert_type(handle.status(), State)
assert_type(handle.signal("go", 3), bool)
assert_type(app.find(handle.id), JobHandle[object])
assert_type(app.enqueue_many([add.call(1)]), list[JobHandle[int]])
assert_type(app.batch([add.call(1)], then=plain.call(2)), Batch[int, str])
assert_type(app.batch([add.call(1)], then=plain.call(2)).result(timeout="5s"), str)
assert_type(app.graph().enqueue(conn=None), dict[str, JobHandle[object]])
assert_type(app.schedule("often", plain.call(1), every="1m").fire().result(), str)
assert_type(app.pause(queue="mail", reason="the server moves"), bool)
handle.status(1)            # E: call-arg
handle.result([1])          # E: arg-type
handle.signal()             # E: call-arg
app.pause(queu="mail")      # E: call-arg
app.pause(queue=1)          # E: arg-type
app.set_weight("acme", "3")      # E: arg-type
app.batch([add.call(1)])    # E: call-arg
app.enqueue_many([1])       # E: arg-type

async def main() -> None:
    assert_type(await handle.astatus(), State)
    assert_type(await app.abatch([add.call(1)], then=plain.call(2)), Batch[int, str])
    job = await send.aenqueue("a@example.org", subject="hi")
    assert_type(job, JobHandle[dict[str, str]])
    assert_type(await job.aresult(timeout=5), dict[str, str])
    assert_type(await plain(3), str)
    await app.aenqueue_many((add.call(i, i) for i in range(3)), conn=None)
    await send.aenqueue("a@example.org")            # E: call-arg
    await send.aenqueue("a@example.org", "hi")      # E: call-arg
    await send.aenqueue(1, subject="hi")            # E: arg-type
    add.call("x", 1)                                # E: arg-type
    async with app.worker(concurrency=100):
        ...
    async with app.worker(concurrency="many"):      # E: arg-type
        ...
"""


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(windlass.__file__).parent / "py.typed").exists()


@pytest.mark.slow
def test_mypy_knows_parameters_and_results_and_finds_every_mistake(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    expected = {
        (number, line.partition("# E: ")[2].strip())
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# E: " in line
    }

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path), str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    found = {
        (int(number), code)
        for number, code in re.findall(r"program\.py:(\d+): error: .*\[([a-z-]+)\]$", checked.stdout, re.MULTILINE)
    }
    assert found == expected, checked.stdout + checked.stderr
