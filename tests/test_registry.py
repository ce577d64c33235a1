"""Declaring job types: what a function may be, and every mistake's own sentence."""

from __future__ import annotations

from typing import Any

import pytest

from windlass import Context, Windlass, fixed
from windlass.config import Pace, Settings
from windlass.declare.registry import Isolation
from windlass.errors import DuplicateType, InvalidInput, RegistrationError, UnknownType


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///nowhere.db")


def test_a_function_becomes_a_type_by_its_name_and_stays_callable(app: Windlass) -> None:
    @app.job
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    definition = app._registry.require("add")
    assert (add(2), add(2, 3), add._definition.type, add.__doc__) == (3, 5, "add", "Add two numbers.")
    assert (definition.queue, definition.isolation, definition.signature.context) == (
        "default",
        Isolation.THREAD,
        None,
    )
    assert app._registry.types == ("add",)


async def test_a_coroutine_runs_on_the_loop_unless_it_wants_a_process(app: Windlass) -> None:
    @app.job
    async def plain(ctx: Context, n: int) -> int:
        return n

    @app.job(isolation="process", memory="256M")
    async def apart(n: int) -> int:
        return n

    assert app._registry.require("plain").isolation is Isolation.COROUTINE
    assert (app._registry.require("apart").isolation, app._registry.require("apart").memory) == (
        Isolation.PROCESS,
        256 << 20,
    )
    assert await apart(3) == 3


def test_two_handlers_of_one_type_are_refused_with_both_places(app: Windlass) -> None:
    @app.job
    def send() -> None: ...

    with pytest.raises(DuplicateType, match=r"'send' is declared twice, by .*send and .*other.*@app\.job\(type="):

        @app.job(type="send")
        def other() -> None: ...

    assert app._registry.require("send").fn is send._definition.fn


def test_an_unknown_type_suggests_what_was_meant(app: Windlass) -> None:
    @app.job(type="EMAIL_SEND")
    def send() -> None: ...

    with pytest.raises(UnknownType, match=r"no job type 'EMAIL_SENT' in this program; did you mean 'EMAIL_SEND'\?"):
        app._registry.require("EMAIL_SENT")
    with pytest.raises(UnknownType, match="there are: EMAIL_SEND"):
        app._registry.require("zzz")


def test_arguments_from_outside_may_have_any_name(app: Windlass) -> None:
    @app.job
    def send(to: str) -> None: ...

    given: dict[str, Any] = {"self": "ann"}
    for make in (send.call, send.enqueue):
        with pytest.raises(InvalidInput, match="self"):
            make(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tiemout": "5m"}, r"@app\.job has no option 'tiemout'; did you mean 'timeout'\?"),
        ({"max_attempts": 0}, "max_attempts=0; a job needs at least 1 attempt"),
        ({"max_attempts": True}, "at least 1 attempt"),
        ({"max_attempts": "3"}, "max_attempts='3'; a job needs at least 1 attempt; write: max_attempts=4"),
        ({"retries": 3}, "no option 'retries'; write: max_attempts=4 for 3 retries: the first attempt counts, too"),
        ({"max_retries": 3}, "no option 'max_retries'; write: max_attempts=4 for 3 retries"),
        ({"name": "x"}, "no option 'name'; write: type="),
        ({"time_limit": 5}, "no option 'time_limit'; write: timeout="),
        ({"countdown": 5}, r"no option 'countdown'; an enqueue has it: add\.options\(delay=\"10s\"\)\.enqueue\(…\)"),
        ({"permanent": ValueError}, r"permanent is not a list; write: permanent=\[ValueError\]"),
        ({"timeout": 0}, "leaves no time at all"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"priority": 99_999}, "priority=99999 is not in"),
        ({"type": ""}, "type is empty"),
        ({"type": "a\nb"}, "type contains a control character"),
        ({"queue": "x" * 201}, "queue has 201 characters; 200 is the most"),
        ({"queue": " mail"}, "queue begins or ends with white space"),
        ({"isolation": "fork"}, "isolation='fork'; there are: coroutine, thread, process"),
        ({"isolation": "coroutine"}, "does not fit this function, which runs as a thread"),
        ({"retry": 3}, r"retry=3; use exponential\(…\), delays\(…\) or fixed\(…\)"),
        ({"permanent": [ValueError("x")]}, "permanent lists ValueError.*not an exception class"),
        ({"transient": ["OSError"]}, "transient lists 'OSError'"),
        ({"memory": "big"}, "not a size of memory"),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_is_registered(
    app: Windlass, options: dict[str, Any], message: str
) -> None:
    def work(n: int) -> None: ...

    with pytest.raises((RegistrationError, ValueError), match=message):
        app.job(**options)(work)

    assert len(app._registry) == 0


def no_hints(n) -> None: ...  # type: ignore[no-untyped-def]


def no_context(ctx, n: int) -> None: ...  # type: ignore[no-untyped-def]


async def no_awaited_context(context, n: int) -> None: ...  # type: ignore[no-untyped-def]


def no_hint_for_a_later_ctx(n: int, ctx) -> None: ...  # type: ignore[no-untyped-def]


def any_number(*args: int) -> None: ...


def any_keyword(**options: int) -> None: ...


def by_place(n: int, /) -> None: ...


def generator(n: int) -> Any:
    yield n


def late_context(n: int, ctx: Context) -> None: ...


def opaque(n: Windlass) -> None: ...


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (no_hints, "parameter 'n' has no type hint; write one: n: str"),
        (no_context, "parameter 'ctx' has no type hint; write one: ctx: SyncContext"),
        (no_awaited_context, "parameter 'context' has no type hint; write one: context: Context"),
        (no_hint_for_a_later_ctx, "parameter 'ctx' has no type hint; write one: ctx: str"),
        (any_number, "parameter 'args' takes any number"),
        ("mail", "given 'mail' without a name; write: queue='mail' or type='mail'"),
        (any_keyword, "parameter 'options' takes any keyword"),
        (by_place, "parameter 'n' is positional-only"),
        (generator, "is a generator"),
        (late_context, "parameter 'ctx' is the Context, which must be the first one"),
        (opaque, "cannot be sent as JSON"),
        (lambda: None, "is a lambda"),
        (Windlass, "is a class"),
        (len, "a job is a plain function"),
    ],
)
def test_the_error_for_a_function_that_cannot_be_a_job_names_what_to_change(
    app: Windlass, fn: Any, message: str
) -> None:
    with pytest.raises(RegistrationError, match=message):
        app.job(fn)

    assert len(app._registry) == 0


def test_a_type_leaves_to_the_settings_what_it_does_not_say(app: Windlass) -> None:
    @app.job
    def plain() -> None: ...

    @app.job(max_attempts=9, timeout="1m", retry=fixed("3s"))
    def chosen() -> None: ...

    settings = Settings(max_attempts=2, timeout=300.0, pace=Pace.POLITE)
    assert (plain._definition.attempts(settings), chosen._definition.attempts(settings)) == (2, 9)
    assert (plain._definition.limit(settings), chosen._definition.limit(settings)) == (300.0, 60.0)
    assert plain._definition.retry_policy(settings).delay(1) == 300.0
    assert chosen._definition.retry_policy(settings).delay(5) == 3.0


class Mailer:
    def send(self, to: str) -> None: ...


def test_a_method_is_refused_with_the_function_to_write(app: Windlass) -> None:
    with pytest.raises(RegistrationError) as caught:
        app.job(Mailer.send)

    assert str(caught.value).endswith(
        "Mailer.send is a method, and a job is called without an object; write a function outside the class, which "
        "makes or loads the object: def send(…): return Mailer(…).send(…)"
    )


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("delay", "send.enqueue(…)"),
        ("send", "send.enqueue(…)"),
        ("defer", "send.enqueue(…)"),
        ("apply_async", 'send.options(delay="10m").enqueue(…)'),
        ("send_with_options", 'send.options(delay="10m").enqueue(…)'),
        ("defer_async", "await send.aenqueue(…)"),
        ("si", "send.call(…)"),
    ],
)
def test_the_words_of_other_libraries_are_answered_with_the_line_to_write(app: Windlass, word: str, line: str) -> None:
    @app.job
    def send(to: str) -> None: ...

    for job in (send, send.options(priority=1)):
        with pytest.raises(AttributeError) as caught:
            getattr(job, word)
        assert str(caught.value) == f"a job type has no .{word}; write: {line}"
        assert not hasattr(job, word)


def test_any_other_name_is_an_ordinary_attribute_error(app: Windlass) -> None:
    @app.job
    def send(to: str) -> None: ...

    with pytest.raises(AttributeError, match="'PlainJob' object has no attribute 'enqeue'"):
        getattr(send, "enqeue")  # noqa: B009
