"""`JobHandler`: a job type as a class or as an object, declared, checked, enqueued and run as a function is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from servers import url_of
from windlass import Context, JobHandler, JobType, State, SyncContext, Windlass
from windlass.declare.registry import Isolation
from windlass.errors import InvalidInput, RegistrationError
from windlass.runtime.processes.importing import importable, refusal
from windlass.testing import Harness, harness

declared = Windlass("sqlite:////nowhere/jobs.db")


@declared.job(type="entity.match", isolation="process")
class Match(JobHandler):
    """Match an entity."""

    async def handle(self, ctx: Context, task_id: int) -> str:
        return f"{ctx.job.type} {task_id}"


class Greet(JobHandler):
    def __init__(self, word: str) -> None:
        self.word = word

    def handle(self, name: str, *, mark: str = "!") -> str:
        """Greet one person."""
        return f"{self.word} {name}{mark}"


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db")


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass) -> Iterator[Harness]:
    with harness(app, None if request.param == "sqlite" else url_of("postgres"), patience="30s") as bench:
        yield bench


def test_a_class_and_an_object_with_dependencies_process_jobs(app: Windlass, bench: Harness) -> None:
    @app.job(type="entity.double")
    class Double(JobHandler):
        def __init__(self) -> None:
            self.seen = 0

        async def handle(self, ctx: Context, n: int) -> tuple[str, int, int]:
            self.seen += 1
            return ctx.job.type, 2 * n, self.seen

    greet = app.job(queue="mail")(Greet("hello"))
    jobs = [Double.enqueue(n=1), Double.options(priority=5).enqueue(2)]
    hello = greet.enqueue("ann", mark="?")

    bench.drain()

    assert [job.result() for job in jobs] == [("entity.double", 2, 2), ("entity.double", 4, 1)]
    assert (hello.result(), hello.record().type, hello.record().queue) == ("hello ann?", "Greet", "mail")


async def test_it_stays_callable_and_has_the_parameters_of_its_handle(app: Windlass) -> None:
    greet = app.job(Greet("hello"))

    assert greet("ann") == "hello ann!"
    assert str(inspect.signature(greet.call)).startswith("(name: 'str'") or "name: str" in str(
        inspect.signature(greet.call)
    )
    assert greet.__doc__ == "Greet one person."
    assert Match.__doc__ == "Match an entity."
    with pytest.raises(InvalidInput, match=r"Greet\(\): \$\.name: Expected `str`, got `int`"):
        greet.call(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"Greet\(\) missing required argument 'name'"):
        greet.call()  # type: ignore[call-arg]


def test_a_failing_handle_is_a_failed_attempt_with_its_own_traceback(app: Windlass, bench: Harness) -> None:
    @app.job(max_attempts=1)
    class Break(JobHandler):
        def handle(self, ctx: SyncContext) -> None:
            raise ValueError("out of rope")

    job = Break.enqueue()
    bench.drain()

    failure = job.record().failure()
    assert job.status() is State.DEAD
    assert failure is not None
    assert (failure.type, failure.message) == ("ValueError", "out of rope")
    assert "in handle" in (failure.traceback or "")


def test_a_function_adapts_to_it(app: Windlass, bench: Harness) -> None:
    async def send(ctx: Context, to: str) -> str:
        return f"{ctx.job.type} {to}"

    handler = JobHandler.of(send)
    job = app.job(handler).enqueue("ann")
    bench.drain()

    assert isinstance(handler, JobHandler)
    assert inspect.iscoroutinefunction(handler.handle)
    assert job.result() == "send ann"


def test_a_child_process_finds_a_class_by_its_name_and_an_object_through_its_program(app: Windlass) -> None:
    match: Any = Match
    greet = app.job(Greet("hello"))

    assert isinstance(match, JobType)
    assert match._definition.isolation is Isolation.PROCESS
    assert importable(match._definition)
    assert not importable(greet._definition)
    assert refusal(greet._definition) == (
        "test_job_handler.Greet cannot be imported in a child process; declare it as a class at the top level of a "
        "module that is not the main one, or start the worker with its program: windlass worker app.py"
    )


def test_each_mistake_has_its_sentence(app: Windlass) -> None:
    class Nothing(JobHandler): ...

    class Many(JobHandler):
        def handle(self, *ids: int) -> None: ...

    class Untyped(JobHandler):
        async def handle(self, task_id) -> None: ...  # type: ignore[no-untyped-def]

    class OtherContext(JobHandler):
        async def handle(self, ctx: SyncContext) -> None: ...

    class Static(JobHandler):
        @staticmethod
        def handle(a: int) -> None: ...

    class Yields(JobHandler):
        def handle(self, a: int) -> Iterator[int]:
            yield a

    class Raises(JobHandler):
        def __init__(self) -> None:
            raise OSError("no such host")

        def handle(self) -> None: ...

    def said(handler: Any, error: type[Exception] = RegistrationError) -> str:
        with pytest.raises(error) as caught:
            app.job(handler)
        return str(caught.value).replace("test_each_mistake_has_its_sentence.<locals>.", "")

    assert said(Nothing) == (
        "test_job_handler.Nothing is an abstract JobHandler without handle; write: "
        "async def handle(self, ctx: Context, …) -> …"
    )
    assert said(Greet) == (
        "test_job_handler.Greet cannot be made without arguments (missing a required argument: 'word'); declare an "
        "object of it instead: greet = app.job(Greet(…))"
    )
    assert said(Many).startswith("test_job_handler.Many.handle: parameter 'ids' takes any number; name them, or")
    assert said(Untyped).startswith("test_job_handler.Untyped.handle: parameter 'task_id' has no type hint")
    assert said(OtherContext).endswith("a coroutine has a Context; write: async def handle(ctx: Context, …)")
    assert said(Static).startswith("test_job_handler.Static.handle is no method of an object; write: async def handle(")
    assert "test_job_handler.Yields.handle is a generator" in said(Yields)
    assert said(Raises, OSError) == "no such host"
    assert app._registry.types == ()


def test_no_class_derives_from_a_job_type() -> None:
    with pytest.raises(RegistrationError, match=r"derive from a class without @app\.job: class MatchBase"):

        class Other(Match): ...
