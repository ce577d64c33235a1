"""Words of other libraries and wrong arguments: each error has the line to write."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from windlass import Dead, Retry, Snooze, State, Windlass, exponential, phase, words
from windlass.declare.options import Options
from windlass.declare.registry import JobOptions
from windlass.errors import ConfigError, EnqueueError, FilterError, JobNotFound, RegistrationError
from windlass.handler.context import BaseContext
from windlass.handles.job import JobHandle
from windlass.model.job import new_id
from windlass.runtime.worker import Worker

app = Windlass("sqlite:///nowhere.db")


@app.job
def add(a: int, b: int) -> int:
    return a + b


job: JobHandle[Any] = JobHandle(app._client, new_id(), add._definition)
call: Any = add.call(1, 2)
loose: Any = app
"""The app without its types: what a newcomer may write."""

SHELL = "in a program without an event loop, start it in a shell: windlass worker app.py"

WORDS: list[tuple[str, object, str, str]] = [
    ("app", app, "task", "app has no .task; write: @app.job"),
    ("app", app, "enqueue", "app has no .enqueue; write: add.enqueue(…), where @app.job decorates add"),
    ("app", app, "send_task", "app has no .send_task; write: add.enqueue(…), where @app.job decorates add"),
    ("app", app, "aenqueue", "app has no .aenqueue; write: await add.aenqueue(…), where @app.job decorates add"),
    ("app", app, "get_job", "app has no .get_job; write: app.find(id)"),
    ("app", app, "cron", 'app has no .cron; write: app.schedule("nightly", report.call(), cron="0 3 * * *")'),
    ("app", app, "start", f"app has no .start; write: async with app.worker(): …; {SHELL}"),
    ("app", app, "run", f"app has no .run; write: async with app.worker(): …; {SHELL}"),
    ("job", job, "get", "the handle of a job has no .get; write: job.result(timeout=5), which waits for the end"),
    ("job", job, "wait", "the handle of a job has no .wait; write: job.result(timeout=5), which waits for the end"),
    (
        "job",
        job,
        "ready",
        'the handle of a job has no .ready; write: job.status() in ("succeeded", "dead", "cancelled")',
    ),
    ("job", job, "state", "the handle of a job has no .state; write: job.status()"),
    ("job", job, "revoke", "the handle of a job has no .revoke; write: job.cancel()"),
    ("job", job, "abort", "the handle of a job has no .abort; write: job.cancel()"),
    ("call", call, "enqueue", f"a call has no .enqueue; write: {words.CALL['enqueue']}"),
    ("call", call, "delay", f"a call has no .delay; write: {words.CALL['delay']}"),
    ("ctx", object.__new__(BaseContext), "retry", 'ctx has no .retry; write: raise Retry(after="30s")'),
    ("worker", object.__new__(Worker), "run", f"a worker has no .run; write: async with app.worker(): …; {SHELL}"),
]


@pytest.mark.parametrize(
    ("owner", "word", "message"), [pytest.param(*row[1:], id=f"{row[0]}.{row[2]}") for row in WORDS]
)
def test_a_word_of_another_library_is_answered_with_the_line_to_write(owner: object, word: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(owner, word)

    assert str(caught.value) == message
    assert not hasattr(owner, word)


@pytest.mark.parametrize("owner", [app, job, call, object.__new__(BaseContext), object.__new__(Worker)])
def test_any_other_name_is_an_ordinary_attribute_error(owner: object) -> None:
    with pytest.raises(AttributeError, match=f"'{type(owner).__name__}' object has no attribute 'enqeue'"):
        getattr(owner, "enqeue")  # noqa: B009


@pytest.mark.parametrize(
    ("owner", "table"),
    [
        (Windlass, words.APP),
        (JobHandle, words.HANDLE),
        (type(add), words.JOB_TYPE),
        (type(call), words.CALL),
        (BaseContext, words.CONTEXT),
        (Worker, words.WORKER),
    ],
)
def test_no_word_from_elsewhere_is_a_name_of_our_own(owner: type, table: dict[str, str]) -> None:
    assert [word for word in table if inspect.getattr_static(owner, word, None) is not None] == []


def test_the_options_in_answers_are_the_options_that_there_are() -> None:
    known = {*Options.__struct_fields__, *JobOptions.__annotations__}

    assert tuple(words.OPTIONS) == Options.__struct_fields__
    assert {option for option, _, _ in words.SYNONYMS.values()} <= known
    assert known.isdisjoint(words.SYNONYMS)


MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "pause": (
        lambda: loose.pause("mail"),
        TypeError,
        'app.pause() takes its arguments by name; write: app.pause(queue="mail", reason="the server moves")',
    ),
    "jobs by state": (
        lambda: loose.jobs(state="dead"),
        TypeError,
        "app.jobs() has no argument 'state'; write: app.jobs(\"state:dead\")",
    ),
    "jobs with a limit": (
        lambda: loose.jobs("", limit=5),
        TypeError,
        "app.jobs() has no argument 'limit'; write: count=5",
    ),
    "jobs by position": (
        lambda: loose.jobs("", 5),
        TypeError,
        'app.jobs() takes 1 argument without a name, not 2; write: app.jobs("state:failed,dead queue:mail", count=100)',
    ),
    "jobs by a State": (lambda: loose.jobs(State.DEAD), FilterError, '; write: app.jobs("state:dead")'),
    "jobs with OR": (
        lambda: app.jobs("state:dead OR state:failed"),
        FilterError,
        "OR is not a term; values of one field are listed with commas: state:dead,failed",
    ),
    "batch without then": (
        lambda: loose.batch([call]),
        TypeError,
        "app.batch() missing 1 required keyword-only argument: 'then'; write: app.batch(calls, then=notify.call())",
    ),
    "lifespan": (
        lambda: loose.lifespan(workers=True),
        TypeError,
        "app.lifespan() has no argument 'workers'; write: worker=True",
    ),
    "schedule": (
        lambda: loose.schedule("nightly", call, crontab="0 3 * * *"),
        TypeError,
        "app.schedule() has no argument 'crontab'; write: cron=\"0 3 * * *\"",
    ),
    "worker of a queue": (
        lambda: loose.worker(queue="mail"),
        TypeError,
        "app.worker() has no argument 'queue'; write: queues=[\"mail\"]",
    ),
    "worker, misspelt": (
        lambda: loose.worker(concurency=5),
        TypeError,
        "app.worker() has no argument 'concurency'; did you mean 'concurrency'?",
    ),
    "exponential": (
        lambda: exponential(max="1h"),  # type: ignore[call-arg]
        TypeError,
        "exponential() has no argument 'max'; write: most=\"1h\"",
    ),
    "Retry": (
        lambda: Retry(countdown=3),  # type: ignore[call-arg]
        TypeError,
        "Retry() has no argument 'countdown'; write: after=\"30s\"",
    ),
    "Snooze without a time": (
        lambda: Snooze(),  # type: ignore[call-arg]
        TypeError,
        "Snooze() missing 1 required positional argument: 'delay'; write: raise Snooze(\"30s\")",
    ),
    "one call": (
        lambda: app.enqueue_many(call),
        EnqueueError,
        "not TypedCall; write a list: app.enqueue_many([add.call(…)])",
    ),
    "two calls": (
        lambda: loose.enqueue_many(call, call),
        TypeError,
        "app.enqueue_many() takes 1 argument without a name, not 2; write: app.enqueue_many(add.call(i, i) for i in",
    ),
    "find a handle": (lambda: loose.find(job), JobNotFound, "as an enqueue returns it; write: app.find(job.id)"),
    "a call as a phase": (
        lambda: loose.pipeline("p", call),
        RegistrationError,
        "pipeline 'p': a call of 'add' is neither a job type nor a phase;",
    ),
    "phase of a call": (lambda: phase(call), RegistrationError, "a call of 'add' cannot be a phase;"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_argument_is_answered_with_what_to_write(mistake: str) -> None:
    attempt, kind, message = MISTAKES[mistake]

    with pytest.raises(kind) as caught:
        attempt()

    assert message in str(caught.value)


async def test_a_worker_in_a_plain_with_names_async_with_and_the_command() -> None:
    worker: Any = app.worker()

    with pytest.raises(ConfigError, match=r"write: async with app\.worker\(\): …; .* windlass worker app\.py"), worker:
        pass


def test_an_error_inside_a_function_is_left_as_it_is() -> None:
    @words.explain_arguments("broken")
    def broken(n: int) -> None:
        len(n)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"object of type 'int' has no len\(\)"):
        broken(3)


def test_a_directive_is_named_as_users_import_it() -> None:
    assert {kind.__module__ for kind in (Retry, Snooze, Dead)} == {"windlass"}
