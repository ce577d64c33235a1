"""What a type checker finds in a user's program: a wrong argument is an error before anything runs."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import windlass
from windlass import Context, SyncContext, Windlass

PROGRAM = """
from typing import Any, assert_type
from windlass import Batch, Child, Context, JobHandle, JobHandler, JobType, State, SyncContext, Windlass
from windlass import exponential, limit, phase, rate, unique

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
unique(scope="globl")       # E: arg-type
unique("link", states="unfinished", scope="global")
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

@app.job(type="entity.match")
class Match(JobHandler):
    async def handle(self, ctx: Context, task_id: int, note: str = "") -> str:
        return note

class Greet(JobHandler):
    def __init__(self, word: str) -> None: ...
    def handle(self, name: str) -> bytes:
        return name.encode()

assert_type(Match.enqueue(task_id=1), JobHandle[str])
assert_type(Match.options(priority=1).enqueue(1, note="x"), JobHandle[str])
assert_type(app.enqueue_many([Match.call(1)]), list[JobHandle[str]])
assert_type(app.job(Match).enqueue(1), JobHandle[str])
assert_type(app.job(queue="mail")(Greet("hi")).enqueue("ann"), JobHandle[bytes])
assert_type(app.job(Greet("hi"))("ann"), bytes)
assert_type(app.job(JobHandler.of(len)).enqueue([1]), JobHandle[int])
Match.enqueue("1")                  # E: arg-type
Match.enqueue()                     # E: call-arg
Match.call(1, nte="x")              # E: call-arg
app.job(Greet("hi")).enqueue(3)     # E: arg-type

line = app.pipeline("line", plain, phase(with_context, processors=3), add, labels={"dead": "failed"})
assert_type(line.enqueue(3).result(), int)
assert_type(line.options(priority=5).enqueue(n=3), JobHandle[int])
assert_type(app.pipeline("one", plain).enqueue(3).result(), str)
assert_type(app.pipeline("two", plain, phase(add)).enqueue(3).result(), int)
assert_type(app.pipeline("five", phase(crawl), plain, add, once, with_context).enqueue("x"), JobHandle[list[int]])
some: list[JobType[..., Any]] = [plain, add]
assert_type(app.pipeline("unpacked", *some).enqueue(3).result(), Any)
line.enqueue("3")           # E: arg-type
line.enqueue()              # E: call-arg
app.pipeline("print", 1)    # E: call-overload
app.pipeline("list", [plain, add])              # E: call-overload
app.pipeline("label", plain, lables={})         # E: call-overload

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

# Calls with different results: mypy joins them to object, pyright makes a union; an annotation gives both the union.
assert_type(app.enqueue_many([add.call(1), plain.call(2)]), list[JobHandle[object]])
mixed: list[JobHandle[int | str]] = app.enqueue_many([add.call(1), plain.call(2)])
either: JobHandle[int | str] = add.enqueue(1)
assert_type(either.result(), int | str)
assert_type(app.batch([add.call(1), plain.call(2)], then=plain.call(3)).jobs[0], JobHandle[object])
assert_type(app.batch([add.call(1), plain.call(2)], then=plain.call(3)).result(), str)

@app.job
async def parent(ctx: Context) -> int:
    numbers = ctx.spawn_many("add", [add.call(n) for n in range(3)])
    assert_type(numbers, list[Child[int]])
    assert_type(await ctx.wait(numbers), list[int])
    assert_type(await ctx.wait(numbers, need="any", timeout="1h"), list[int])
    for child in await ctx.wait(numbers, need="ended"):
        assert_type(child, Child[int])
        assert_type(child.result, int | None)
        assert_type(child.status, State | None)
    assert_type(await ctx.wait([await plain.aenqueue(1)], need="ended"), list[Child[str]])
    assert_type(await ctx.wait([handle.id, "id"], need="ended"), list[Child[object]])
    assert_type(await ctx.wait([*numbers, "id"]), list[object])
    both = [ctx.spawn("a", add.call(1)), ctx.spawn("b", plain.call(1))]
    assert_type(await ctx.wait(both), list[object])
    annotated: list[Child[int | str]] = [ctx.spawn("c", add.call(1)), ctx.spawn("d", plain.call(1))]
    assert_type(await ctx.wait(annotated), list[int | str])
    return len(ctx.spawn_many("mixed", [add.call(1), plain.call(2)]))

@app.job
def blocking_parent(ctx: SyncContext) -> list[int | None]:
    numbers = ctx.spawn_many("add", [add.call(n) for n in range(3)])
    assert_type(ctx.wait(numbers), list[int])
    return [child.result for child in ctx.wait(numbers, need="ended")]

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

MISTAKES = """
from windlass import Context, SyncContext, Windlass

app = Windlass()

@app.job
def add(a: int, b: int = 2) -> int:
    return a + b

@app.job
async def send(ctx: Context, to: str, *, subject: str) -> str:
    return to

# Arguments
add.enqueue("2")                            # E: arg-type
add.enqueue(2, b="3")                       # E: arg-type
add.enqueue()                               # E: call-arg
add.enqueue(1, 2, 3)                        # E: call-arg
add.enqueue(1, c=2)                         # E: call-arg
add.options(delay="1m").enqueue("2")        # E: arg-type
send.enqueue("ann")                         # E: call-arg
send.enqueue("ann", "hello")                # E: call-arg
send.enqueue("ann", subjet="hello")         # E: call-arg
send.call(3, subject="hello")               # E: arg-type
app.schedule("nightly", add.call("2"), every="1d")  # E: arg-type

# A call that is not a call
app.enqueue_many([add(1)])                  # E: arg-type
app.enqueue_many([add.enqueue(1)])          # E: arg-type
app.enqueue_many(add.call(1))               # E: arg-type
app.schedule("nightly", add, every="1d")    # E: arg-type
app.batch([add.call(1)], then=add)          # E: arg-type

# Results
text: str = add.enqueue(1).result()         # E: assignment
add.enqueue(1).result() + "1"               # E: operator
add.enqueue(1) + 1                          # E: operator
number: int = send.enqueue("ann", subject="hello").result()  # E: assignment

async def awaiting() -> None:
    await add.enqueue(1)                    # E: misc
    await add.enqueue(1).result()           # E: misc
    await app.enqueue_many([add.call(1)])   # E: misc
    (await add.aenqueue(1)).aresult()       # E: unused-coroutine
    add.aenqueue(1)                         # E: unused-coroutine
    number: int = (await add.aenqueue(1)).aresult()  # E: assignment
    add.aenqueue(1).id                      # E: attr-defined
    await add.aenqueue("1")                 # E: arg-type
    await add(1)                            # E: misc

@app.job
async def parent(ctx: Context) -> int:
    kids = ctx.spawn_many("kid", [add.call(n) for n in range(3)])
    await kids[0]                           # E: misc
    await ctx.spawn("late", add.call(1))    # E: misc
    ctx.spawn("kid", add(1))                # E: arg-type
    ctx.spawn("kid", add.call("1"))         # E: arg-type
    sum(ctx.wait(kids))                     # E: call-overload
    await ctx.wait(kids, need="some")       # E: call-overload
    await ctx.wait(kids[0])                 # E: call-overload
    for child in await ctx.wait(kids, need="ended"):
        child.result + 1                    # E: operator
        child + 1                           # E: operator
    ctx.sleep("nap", "3d")                  # E: unused-coroutine
    words: list[str] = await ctx.wait(kids)  # E: assignment
    return sum(await ctx.wait(kids))

@app.job
def blocking_parent(ctx: SyncContext) -> int:
    kids = ctx.spawn_many("kid", [add.call(n) for n in range(3)])
    ctx.wait(kids, need="some")             # E: call-overload
    words: list[str] = ctx.wait(kids)       # E: assignment
    return sum(ctx.wait(kids))

async def not_in_a_coroutine(ctx: SyncContext) -> None:
    await ctx.wait(["id"])                  # E: misc
"""


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(windlass.__file__).parent / "py.typed").exists()


ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_mypy_knows_parameters_and_results_and_finds_every_mistake(tmp_path: Path) -> None:
    programs = {"program.py": PROGRAM, "mistakes.py": MISTAKES}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    expected = {
        (name, number, line.partition("# E: ")[2].strip())
        for name, text in programs.items()
        for number, line in enumerate(text.splitlines(), 1)
        if "# E: " in line
    }

    checked = subprocess.run(  # with the options of `make types`, so that its cache serves both
        [sys.executable, "-m", "mypy", "--no-error-summary", *(str(tmp_path / name) for name in programs)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )

    found = {
        (name, int(number), code)
        for name, number, code in re.findall(
            r"^.*?(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", checked.stdout, re.MULTILINE
        )
    }
    assert found == expected, checked.stdout + checked.stderr


# What `help` and `inspect.signature` show


def declare(app: Windlass) -> dict[str, object]:
    """The methods that have a handler's parameters."""

    @app.job
    async def send(ctx: Context, to: str, *, subject: str = "hi") -> dict[str, int]:
        return {to: len(subject)}

    @app.job
    def count(ctx: SyncContext, to: str) -> list[int]:
        return [len(to)]

    site = app.pipeline("site", send, count)
    return {
        "enqueue": send.enqueue,
        "aenqueue": send.aenqueue,
        "call": send.call,
        "configured": send.options(priority=3).enqueue,
        "pipeline": site.enqueue,
        "configured pipeline": site.options(priority=3).aenqueue,
        "pipeline's call": site.call,
        "no context": app.job(plainly).enqueue,
        "no result": app.job(without_result).enqueue,
        "a parameter self": app.job(selfish).enqueue,
        "job type": send,
        "plain job type": app.job(documented),
    }


def plainly(n: int = 3) -> None: ...


def without_result(n: int):  # type: ignore[no-untyped-def]
    ...


def selfish(self: int) -> int:
    return self


def documented(n: int) -> int:
    """Count to n."""
    return n


SHOWN = {
    "enqueue": "(to: str, *, subject: str = 'hi') -> JobHandle[dict[str, int]]",
    "aenqueue": "(to: str, *, subject: str = 'hi') -> JobHandle[dict[str, int]]",
    "call": "(to: str, *, subject: str = 'hi') -> TypedCall[dict[str, int]]",
    "configured": "(to: str, *, subject: str = 'hi') -> JobHandle[dict[str, int]]",
    "pipeline": "(to: str, *, subject: str = 'hi') -> JobHandle[list[int]]",
    "configured pipeline": "(to: str, *, subject: str = 'hi') -> JobHandle[list[int]]",
    "pipeline's call": "(to: str, *, subject: str = 'hi') -> TypedCall[list[int]]",
    "no context": "(n: int = 3) -> JobHandle[NoneType]",
    "no result": "(n: int) -> JobHandle",
    "a parameter self": "(self: int) -> JobHandle[int]",
    "job type": "(ctx: 'Context', to: 'str', *, subject: 'str' = 'hi') -> 'dict[str, int]'",
    "plain job type": "(n: 'int') -> 'int'",
}


@pytest.mark.parametrize("what", SHOWN)
def test_a_bound_call_shows_the_parameters_of_its_handler(what: str) -> None:
    method = declare(Windlass("sqlite:///nowhere.db"))[what]

    assert re.sub(r"windlass\.[a-z.]+\.", "", str(inspect.signature(method))) == SHOWN[what]  # type: ignore[arg-type]
    assert inspect.iscoroutinefunction(method) is (what in ("aenqueue", "configured pipeline"))


def test_help_shows_them_too() -> None:
    shown = pydoc.plain(pydoc.render_doc(declare(Windlass("sqlite:///nowhere.db"))["enqueue"]))

    assert "enqueue(to: str, *, subject: str = 'hi') -> " in shown
    assert "Enqueue a job" in shown


@pytest.mark.parametrize("what", ["job type", "plain job type"])
def test_help_of_a_job_type_is_that_of_its_function(what: str) -> None:
    job = declare(Windlass("sqlite:///nowhere.db"))[what]

    shown = pydoc.plain(pydoc.render_doc(job)).partition("\n\n")[2]

    text = "    Count to n.\n" if job.__doc__ else ""
    assert shown == f"{job.__name__}{inspect.signature(job)}\n{text}"  # type: ignore[attr-defined,arg-type]


def test_a_job_type_of_a_class_is_not_bound_to_its_instances() -> None:
    class Shop:
        count = Windlass("sqlite:///nowhere.db").job(documented)

    assert Shop().count is Shop.count
    assert Shop().count(3) == 3


def test_a_job_type_and_its_configured_form_share_what_they_show_and_not_what_they_do() -> None:
    app = Windlass("sqlite:///nowhere.db")
    add = app.job(selfish)
    later = add.options(priority=3)

    assert inspect.signature(add.call) == inspect.signature(later.call)
    assert (add.call(1).options.priority, later.call(1).options.priority) == (None, 3)
