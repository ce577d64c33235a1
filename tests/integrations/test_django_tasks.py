"""The contract of django.tasks. With PROJECT_TASKS=backport, that of the backport, also on Django 6."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import FunctionType
from typing import Any
from uuid import uuid4

import pytest

from windlass.observe.events import AttemptEnded

from .rig import PATIENCE, Database


def work(*, ended: int = 1, concurrency: int | None = None) -> list[AttemptEnded]:
    """Run a worker of the project until so many attempts have ended; they are committed when it returns."""
    from windlass.integrations.django import app
    from windlass.integrations.django.task_registry import discover

    discover()
    ended_events: list[AttemptEnded] = []

    async def run() -> None:
        worker, enough = app.worker(concurrency=concurrency), asyncio.Event()

        def record(event: object) -> None:
            if isinstance(event, AttemptEnded):
                ended_events.append(event)
                if len(ended_events) >= ended:
                    enough.set()

        worker.subscribe(record)
        async with worker, asyncio.timeout(PATIENCE):
            await enough.wait()

    asyncio.run(run())
    return ended_events


def tasks_module() -> Any:
    """`django.tasks` or `django_tasks`, whichever the project uses."""
    from django.conf import settings

    if settings.BUILT_IN:
        import django.tasks as module
    else:
        import django_tasks as module
    return module


def exceptions() -> Any:
    from importlib import import_module

    return import_module(f"{tasks_module().__name__}.exceptions")


def raised_as(name: str) -> type[Exception]:
    """Django's exception of this name, which django-tasks up to 0.12 calls `…Error`."""
    found: type[Exception] = getattr(exceptions(), name, None) or getattr(exceptions(), f"{name}Error")
    return found


def invalid() -> type[Exception]:
    return raised_as("InvalidTask")


def test_a_task_is_ready_then_successful_and_its_result_is_complete(project: Database) -> None:
    from shop.tasks import add

    result = add.enqueue(2, b=3)
    assert (result.status, result.args, result.kwargs, result.backend) == ("READY", [2], {"b": 3}, "default")
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts, result.is_finished) == ([], [], 0, False)
    assert result.enqueued_at.tzinfo is not None
    with pytest.raises(ValueError, match="not finished"):
        result.return_value  # noqa: B018

    work()
    result.refresh()

    assert (result.status, result.return_value, result.is_finished) == ("SUCCESSFUL", 5, True)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert result.attempts == 1
    assert len(result.worker_ids) == 1
    assert result.errors == []
    found = add.get_result(result.id)
    assert (found.task, found.args, found.return_value) == (add, [2], 5)


def test_a_task_that_raises_is_failed_with_its_error(project: Database) -> None:
    from shop.tasks import OutOfRope, fail

    result = fail.enqueue("frayed")
    work()
    result.refresh()

    assert (result.status, result.is_finished, result.attempts) == ("FAILED", True, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    [error] = result.errors
    assert error.exception_class_path == "shop.tasks.OutOfRope"
    assert error.exception_class is OutOfRope
    assert "raise OutOfRope(word)" in error.traceback
    assert error.traceback.endswith("OutOfRope: frayed\n")
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018


def test_a_task_that_may_be_repeated_is_ready_between_its_attempts(project: Database) -> None:
    from shop.tasks import fail_twice

    result = fail_twice.enqueue()
    work()
    result.refresh()
    assert (result.status, result.attempts, len(result.errors), result.finished_at) == ("READY", 1, 1, None)
    assert result.errors[0].exception_class is ValueError

    from windlass.integrations.django import app

    app.find(result.id).retry()
    work()
    first = result.started_at
    result.refresh()

    assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 2, 2)
    assert result.started_at == first
    assert result.last_attempted_at > first


def test_a_result_that_json_cannot_carry_fails_the_task(project: Database) -> None:
    from shop.tasks import unserialisable

    result = unserialisable.enqueue()
    work()
    result.refresh()

    assert result.status == "FAILED"
    assert result.errors[0].exception_class is TypeError


def test_arguments_that_json_cannot_carry_are_refused_at_the_enqueue(project: Database) -> None:
    from shop.tasks import add

    with pytest.raises(TypeError, match="Unsupported type"):
        add.enqueue(object())
    assert project.jobs() == 0

    assert add.enqueue((1, 2), b={"c": (3,)}).args == [[1, 2]]


def test_asynchronous_tasks_use_the_orm(project: Database) -> None:
    from shop.models import Order
    from shop.tasks import count

    Order.objects.create(email="a@example.org")
    result = count.enqueue()
    work()
    result.refresh()

    assert result.return_value == 1


def test_synchronous_tasks_use_the_orm_on_their_queue_and_priority(project: Database) -> None:
    from shop.models import Order
    from shop.tasks import thank

    Order.objects.create(email="a@example.org")
    result = thank.enqueue("a@example.org")
    assert project.run("SELECT queue, priority, type FROM {}jobs") == [("mail", 5, "shop.tasks.thank")]
    work()
    result.refresh()

    assert result.return_value == 1
    assert Order.objects.get().thanked
    assert (result.task.queue_name, result.task.priority) == ("mail", 5)


def test_operators_see_a_task_by_its_path(project: Database) -> None:
    from shop.tasks import add, thank

    from windlass.integrations.django import app

    app.pause(type="shop.tasks.add", reason="a story")
    held, ran = add.enqueue(1), thank.enqueue("a@example.org")
    work()
    held.refresh()
    ran.refresh()

    assert (held.status, ran.status) == ("READY", "SUCCESSFUL")
    assert project.run("SELECT type FROM {}audit WHERE action = 'JOB_SUCCEEDED'") == [("shop.tasks.thank",)]
    app.resume(type="shop.tasks.add")
    [end] = work()
    assert end.job.type == "shop.tasks.add"


def test_an_enqueue_returns_what_was_written(project: Database) -> None:
    from django.db import transaction
    from shop.tasks import add

    outside = add.using(priority=3).enqueue(1)
    assert add.get_result(outside.id) == outside
    with transaction.atomic():
        inside = add.enqueue(2)
        assert add.get_result(inside.id) == inside

    written = [moment for (moment,) in project.run("SELECT created_at FROM {}jobs ORDER BY id")]
    stored = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at) for at in written if isinstance(at, int)]
    assert [outside.enqueued_at, inside.enqueued_at] == (stored or written)


def test_the_higher_priority_runs_first(project: Database) -> None:
    from shop.tasks import add

    low, high = add.using(priority=-100).enqueue(1), add.using(priority=100).enqueue(2)
    ended = work(ended=2, concurrency=1)

    assert [str(event.job.id) for event in ended] == [high.id, low.id]


def test_a_task_with_context_knows_its_own_result(project: Database) -> None:
    from shop.tasks import look

    result = look.enqueue("ahoy")
    work()
    result.refresh()

    assert result.return_value == {"attempt": 1, "id": result.id, "word": "ahoy", "status": "RUNNING", "args": ["ahoy"]}


def test_run_after_defers_the_task(project: Database) -> None:
    from shop.tasks import add

    later = datetime.now(UTC) + timedelta(hours=1)
    deferred, now = add.using(run_after=later).enqueue(1), add.enqueue(2)
    work()
    deferred.refresh()
    now.refresh()

    assert (deferred.status, now.status) == ("READY", "SUCCESSFUL")
    assert add.get_result(deferred.id).task.run_after == later


def test_a_task_that_the_backend_cannot_run_is_refused_when_it_is_made(project: Database) -> None:
    from shop.tasks import add

    with pytest.raises(invalid(), match="Queue 'nowhere' is not valid"):
        add.using(queue_name="nowhere")
    with pytest.raises(invalid(), match="between -100 and 100"):
        add.using(priority=101)
    with pytest.raises(invalid(), match="aware"):
        add.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(invalid(), match="module level"):
        tasks_module().task()(_local())
    with pytest.raises(invalid(), match="'context'"):
        tasks_module().task(takes_context=True)(module_level)
    with pytest.raises(invalid(), match="max_attempts"):
        tasks_module().task(max_attempts=0)(module_level)
    with pytest.raises(invalid(), match=r"shop\.tasks\.add: run_at=.* 1970 to 2999"):
        add.using(run_after=datetime(5000, 1, 1, tzinfo=UTC)).enqueue(1)
    assert project.jobs() == 0


def test_the_path_of_a_task_is_the_name_of_a_type(project: Database) -> None:
    from windlass.integrations.django import app

    app.job(type=f"{__name__}.named_twice")(module_level)
    for name, problem in (("named_twice", "also the type of a job"), ("x" * 200, "200 is the most")):
        function = FunctionType(module_level.__code__, globals(), name)
        function.__qualname__ = name
        with pytest.raises(invalid(), match=problem):
            tasks_module().task()(function)
    app._registry._definitions.pop(f"{__name__}.named_twice")


def test_the_exceptions_of_the_backport_are_found_under_both_names(
    project: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_tasks import exceptions

    from windlass.integrations.django.backport import _exception

    class Renamed(Exception): ...

    monkeypatch.delattr(exceptions, "InvalidTask", raising=False)
    monkeypatch.setattr(exceptions, "InvalidTaskError", Renamed, raising=False)
    assert _exception("InvalidTask") is Renamed
    monkeypatch.setattr(exceptions, "InvalidTask", LookupError, raising=False)
    assert _exception("InvalidTask") is LookupError


def module_level(word: str) -> None: ...


def _local() -> Callable[[], None]:
    def local() -> None: ...

    return local


def test_missing_results_raise(project: Database) -> None:
    from shop.jobs import thank
    from shop.tasks import add, fail, fail_twice

    backend = tasks_module().default_task_backend
    other = thank.enqueue("a@example.org")
    elsewhere = fail_twice.enqueue()

    for id in (str(uuid4()), "nonsense", str(other.id), elsewhere.id):
        with pytest.raises(exceptions().TaskResultDoesNotExist):
            backend.get_result(id)
    with pytest.raises(exceptions().TaskResultMismatch):
        fail.get_result(add.enqueue(1).id)


async def test_each_call_has_an_asynchronous_form(project: Database) -> None:
    from django.core.exceptions import SynchronousOnlyOperation
    from shop.tasks import add

    result = await add.aenqueue(2)
    await result.arefresh()
    found = await add.aget_result(result.id)

    assert (result.status, found.id, found.args) == ("READY", result.id, [2])
    result.refresh()  # as Django's own tests do
    with pytest.raises(SynchronousOnlyOperation, match=r"await task\.aenqueue"):
        add.enqueue(2)


def test_an_enqueue_in_an_atomic_block_belongs_to_it(project: Database) -> None:
    from django.db import transaction
    from shop.tasks import add

    with transaction.atomic():
        lost = add.enqueue(1)
        assert add.get_result(lost.id).status == "READY"  # the block sees its own job
        assert project.jobs() == 0
        transaction.set_rollback(True)
    with transaction.atomic():
        kept = add.enqueue(2)

    assert project.jobs() == 1
    kept.refresh()
    with pytest.raises(exceptions().TaskResultDoesNotExist):
        lost.refresh()


def test_signals_report_starts_and_ends_of_a_task(project: Database) -> None:
    from importlib import import_module

    from shop.tasks import add, fail, fail_twice

    signals = import_module(f"{tasks_module().__name__}.signals")
    signalled: list[tuple[str, str, str]] = []
    receivers = []
    for name in ("task_enqueued", "task_started", "task_finished"):

        def record(sender: Any, task_result: Any, name: str = name, **rest: Any) -> None:
            assert sender.__name__ == "WindlassBackend"
            signalled.append((name.removeprefix("task_"), task_result.task.name, task_result.status))
            raise RuntimeError("a receiver only observes")

        getattr(signals, name).connect(record)
        receivers.append((getattr(signals, name), record))
    try:
        for task, args in ((add, (1,)), (fail, ()), (fail_twice, ())):
            task.enqueue(*args)
            work()
    finally:
        for signal, receiver in receivers:
            signal.disconnect(receiver)

    assert signalled == [
        ("enqueued", "add", "READY"),
        ("started", "add", "RUNNING"),
        ("finished", "add", "SUCCESSFUL"),
        ("enqueued", "fail", "READY"),
        ("started", "fail", "RUNNING"),
        ("finished", "fail", "FAILED"),
        ("enqueued", "fail_twice", "READY"),
        ("started", "fail_twice", "RUNNING"),
    ]


@pytest.mark.parametrize("path", ["os.getcwd", "shop.tasks.undeclared", "antigravity.fly", "shop.secret.task"])
def test_nothing_is_imported_or_called_because_a_row_names_it(project: Database, path: str) -> None:
    import sys

    from shop.tasks import add

    from windlass.integrations.django import app

    job = app.find(add.enqueue(1).id)
    project.run(f"UPDATE {{}}jobs SET type = '{path}'")
    known = add.enqueue(2)

    [end] = work()

    assert str(end.job.id) == known.id
    assert path.rpartition(".")[0] not in set(sys.modules) - {"os", "shop.tasks"}
    assert (job.status(), job.record().attempt) == ("queued", 0)  # for a worker that has imported the task
    with pytest.raises(exceptions().TaskResultDoesNotExist, match=f"{path}.*MODULES"):
        add.get_result(str(job.id))


@pytest.mark.parametrize("name", ["snooze", "snooze_by_return"])
def test_a_snoozed_task_is_ready_and_was_not_attempted(project: Database, name: str) -> None:
    from shop import tasks

    result = getattr(tasks, name).enqueue()
    work()
    result.refresh()

    assert (result.status, result.attempts, result.errors) == ("READY", 0, [])
    assert (result.started_at, result.last_attempted_at) == (None, None)


def test_a_cancelled_task_is_failed(project: Database) -> None:
    from shop.tasks import add

    from windlass.integrations.django import app

    result = add.enqueue(1)
    app.find(result.id).cancel()
    result.refresh()

    assert (result.status, result.is_finished, result.attempts) == ("FAILED", True, 0)
    assert result.finished_at is not None


def test_without_time_zones_times_are_naive(project: Database) -> None:
    from django.test import override_settings
    from django.utils import timezone
    from shop.tasks import add

    with override_settings(USE_TZ=False):
        soon = timezone.now() + timedelta(hours=1)
        assert soon.tzinfo is None
        result = add.using(run_after=soon).enqueue(1)
        result.refresh()
        assert result.enqueued_at.tzinfo is None
        assert abs(result.enqueued_at - datetime.now()) < timedelta(hours=3)  # noqa: DTZ005
        [(run_at,)] = project.run("SELECT run_at FROM {}jobs")
    given = datetime.fromtimestamp(run_at / 1e6, UTC) if project.dialect == "sqlite" else run_at
    assert abs(given - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)


def test_the_backend_reports_what_it_supports_and_checks_its_settings(project: Database) -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.test import override_settings

    backend = tasks_module().default_task_backend
    for flag in ("defer", "async_task", "get_result", "priority"):
        assert getattr(backend, f"supports_{flag}") is True
    assert list(backend.check()) == []
    with override_settings(INSTALLED_APPS=["shop"]):
        assert [message.id for message in backend.check()] == ["windlass.E002"]
    kind = type(tasks_module().task_backends["default"])
    refused = raised_as("InvalidTaskBackend")
    assert issubclass(refused, ImproperlyConfigured)
    with pytest.raises(refused, match="did you mean 'MAX_ATTEMPTS'"):
        kind("default", {"OPTIONS": {"MAX_ATTEMPT": 3}})
    with pytest.raises(refused, match=r"TASKS\['default'\]\[\"OPTIONS\"\]\[\"MAX_ATTEMPTS\"\] is 0"):
        kind("default", {"OPTIONS": {"MAX_ATTEMPTS": 0}})


def test_a_view_enqueues_asynchronously(project: Database) -> None:
    from django.test import AsyncClient
    from shop.tasks import add

    async def ask() -> str:
        response = await AsyncClient().get("/ask")
        return str(response.json()["task"])

    id = asyncio.run(ask())
    work()

    assert add.get_result(id).return_value == 5
