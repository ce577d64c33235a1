"""An operator's calls in a program: `app.pause`, `resume`, `set_budget`, `set_weight`, blocking and awaited."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from servers import url_of
from windlass import JobType, Windlass
from windlass.errors import AdmissionError, BlockingCall
from windlass.methods.admin import Operators
from windlass.model.admission import Budget, Gate, GateKind, GateState, Rule
from windlass.testing import Harness, harness

Act = Callable[..., Any]


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db", actor="ann")


@pytest.fixture
def send(app: Windlass) -> JobType[[], None]:
    @app.job(queue="mail")
    def send() -> None: ...

    return send


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass, send: JobType[[], None]) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s") as bench:
        yield bench


@pytest.fixture(params=["blocking", "async"])
def act(request: pytest.FixtureRequest, app: Windlass) -> Act:
    """A call by its name: the one that waits, and the one that is awaited."""

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        if request.param == "blocking":
            return getattr(app, name)(*arguments, **options)
        return asyncio.run(getattr(app, f"a{name}")(*arguments, **options))

    return call


def gates(app: Windlass) -> list[Gate]:
    return app._client.ask(lambda store: store.gates())


def audited(app: Windlass) -> list[tuple[str, str | None, str | None, str | None]]:
    rows = app._client.ask(lambda store: store.audit())
    return [(row.action, row.subject, row.actor, row.reason) for row in reversed(rows) if row.job is None]


# Gates


@pytest.mark.parametrize(("claimed", "state"), [("return", GateState.PAUSED), ("finish", GateState.DRAINING)])
@pytest.mark.parametrize("gate", [{"queue": "mail"}, {"type": "send"}, {"tenant": "default"}, {"all": True}])
def test_nothing_starts_behind_a_closed_gate(
    app: Windlass,
    send: JobType[[], None],
    bench: Harness,
    act: Act,
    claimed: str,
    state: GateState,
    gate: dict[str, Any],
) -> None:
    send.enqueue()

    assert act("pause", **gate, claimed=claimed, reason="moving") is True
    assert bench.drain() == []
    (closed,) = gates(app)
    assert act("resume", **gate) is True

    assert (closed.state, closed.reason, closed.actor) == (state, "moving", "ann")
    assert len(bench.drain()) == 1


def test_saying_it_twice_changes_nothing(app: Windlass, bench: Harness, act: Act) -> None:
    results = [
        act("pause", queue="mail", reason="moving"),
        act("pause", queue="mail"),
        act("pause", queue="mail", claimed="finish"),
    ]
    results += [act("resume", queue="mail"), act("resume", queue="mail"), act("resume", queue="sms")]

    assert results == [True, False, True, True, False, False]
    assert audited(app) == [
        ("GATE_PAUSED", "queue:mail", "ann", "moving"),
        ("GATE_DRAINED", "queue:mail", "ann", None),
        ("GATE_RESUMED", "queue:mail", "ann", None),
    ]
    assert [(gate.kind, gate.name, gate.state) for gate in gates(app)] == [(GateKind.QUEUE, "mail", GateState.OPEN)]


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ({}, "no gate was named: give queue=, type= or tenant=, or all=True for everything"),
        ({"reason": "moving"}, "no gate was named"),
        ({"queue": "a", "tenant": "b"}, "queue= and tenant= are two gates"),
        ({"queue": "a", "all": True}, "queue= and all=True are two gates"),
        ({"queue": ""}, "queue is empty"),
        ({"type": "a\x00b"}, "type contains a control character"),
        ({"tenant": 7}, "tenant must be text, not int"),
        ({"queue": "a", "reason": "x" * 1_001}, "the reason has 1001 characters; 1000 is the most"),
        ({"queue": "a", "reason": 7}, "the reason must be text, not int"),
        ({"queu": "a"}, "unknown option 'queu'; did you mean 'queue'?"),
    ],
)
def test_a_gate_that_is_none_is_refused_before_the_store_is_asked(
    app: Windlass, act: Act, verb: str, gate: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdmissionError) as refused:
        act(verb, **gate)

    assert message in str(refused.value)


# Budgets


def test_a_budget_is_set_changed_and_dropped(app: Windlass, bench: Harness, act: Act) -> None:
    act("set_budget", tenant="acme", cents=500, per="day")
    act("set_budget", queue="models", cents=0, per=timedelta(minutes=30))
    act("set_budget", tenant="acme", cents=900, per="month")

    rows = app._client.ask(lambda store: store.budgets())
    dropped = [act("drop_budget", tenant="acme"), act("drop_budget", tenant="acme")]

    assert [(row.kind, row.name, row.cents, row.seconds) for row in rows] == [
        ("queue", "models", 0, 1800.0),
        ("tenant", "acme", 900, None),
    ]
    assert dropped == [True, False]
    assert [(action, subject, actor) for action, subject, actor, _ in audited(app)] == [
        ("BUDGET_SET", "tenant:acme", "ann"),
        ("BUDGET_SET", "queue:models", "ann"),
        ("BUDGET_SET", "tenant:acme", "ann"),
        ("BUDGET_DROPPED", "tenant:acme", "ann"),
    ]


def test_a_budget_of_nothing_stays_closed_in_every_window(
    app: Windlass, send: JobType[[], None], bench: Harness, act: Act
) -> None:
    act("set_budget", queue="mail", cents=0, per="1m")
    send.enqueue()

    assert bench.drain() == []
    bench.clock.advance("10m")
    assert bench.drain() == []
    act("drop_budget", queue="mail")

    assert len(bench.drain()) == 1


ACME: dict[str, Any] = {"tenant": "acme", "cents": 500, "per": "day"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**ACME, "cents": -1}, "a budget of -1 cents is below zero; 0 lets nothing start"),
        ({**ACME, "cents": 5.0}, "a budget of 5.0: it is a whole number of cents"),
        ({**ACME, "cents": math.nan}, "a budget of nan: it is a whole number of cents"),
        ({**ACME, "cents": True}, "a budget of True"),
        ({**ACME, "cents": "500"}, "a budget of '500'"),
        ({**ACME, "cents": 10**30}, "the budget is more than 1,000,000,000,000,000 cents"),
        ({**ACME, "per": "fortnight"}, "per 'fortnight' is no window: write hour, day, week, month, or a span"),
        ({**ACME, "per": 0}, "per 0 is too short a window; 1s is the least"),
        ({**ACME, "per": math.inf}, "per inf is no window"),
        (
            {"tenant": "acme", "cents": 500},
            "without a window; give per=, as in per='day': hour, day, week",
        ),
        ({**ACME, "queue": "a"}, "a budget is a tenant's or a queue's, not both"),
        ({"cents": 500}, "no tenant or queue was named: give tenant= or queue="),
        ({**ACME, "tenant": " acme"}, "tenant begins or ends with white space"),
    ],
)
def test_an_impossible_budget_is_refused_before_the_store_is_asked(
    app: Windlass, act: Act, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdmissionError) as refused:
        act("set_budget", **given)

    assert message in str(refused.value)


@pytest.mark.parametrize("given", [{}, {"tenant": "a", "queue": "b"}, {"queue": ""}])
def test_a_budget_of_no_tenant_and_no_queue_cannot_be_dropped(app: Windlass, act: Act, given: dict[str, Any]) -> None:
    with pytest.raises(AdmissionError):
        act("drop_budget", **given)


# Weights


def test_a_tenant_is_weighed(app: Windlass, bench: Harness, act: Act) -> None:
    act("set_weight", "acme", 3)
    act("set_weight", "acme", 0.5)

    (row,) = app._client.ask(lambda store: store.tenants())

    assert (row.name, row.weight) == ("acme", 0.5)
    assert audited(app) == [
        ("TENANT_WEIGHED", "tenant:acme", "ann", "weight 3"),
        ("TENANT_WEIGHED", "tenant:acme", "ann", "weight 0.5"),
    ]


@pytest.mark.parametrize("weight", [0, -1, -0.0, math.nan, math.inf, -math.inf, 1e-9, 1e9, True, "3", None, 10**30])
def test_an_impossible_weight_is_refused_before_the_store_is_asked(app: Windlass, act: Act, weight: Any) -> None:
    with pytest.raises(AdmissionError, match="a weight of "):
        act("set_weight", "acme", weight)


def test_a_tenant_without_a_name_is_refused(app: Windlass, act: Act) -> None:
    with pytest.raises(AdmissionError, match="tenant is empty"):
        act("set_weight", "", 1)


# The awaited forms


async def test_a_blocking_call_on_a_loop_names_the_awaited_form(app: Windlass) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "app.apause(…)": lambda: app.pause(queue="mail"),
        "app.aresume(…)": lambda: app.resume(queue="mail"),
        "app.aset_budget(…)": lambda: app.set_budget(**ACME),
        "app.adrop_budget(…)": lambda: app.drop_budget(tenant="acme"),
        "app.aset_weight(…)": lambda: app.set_weight("acme", 3),
        "app.awake(…)": lambda: app.wake("mail"),
    }

    for async_name, call in calls.items():
        with pytest.raises(BlockingCall) as refused:
            call()
        assert async_name in str(refused.value)


def test_every_call_has_an_awaited_form() -> None:
    public = {name for name in vars(Operators) if not name.startswith("_")}
    plain = {name for name in public if f"a{name}" in public}

    assert plain | {f"a{name}" for name in plain} == public
    assert plain == {"pause", "resume", "set_budget", "drop_budget", "set_weight", "wake", "hold_back", "release"}


def test_a_day_is_a_window() -> None:
    from windlass.methods.admin import budget

    assert budget("acme", None, 500, "day") == Budget(kind="tenant", name="acme", cents=500, seconds=86_400.0)


# Holds


def test_a_key_is_held_back_and_released_with_its_actor(app: Windlass, bench: Harness, act: Act) -> None:
    app._client.ask(lambda store: store.declare([Rule(name="wikidata", most=1)]))

    assert act("hold_back", "wikidata", "2m") == pytest.approx(120, abs=5)
    assert act("release", "wikidata") is True
    assert act("release", "wikidata") is False
    assert [(action, subject, actor) for action, subject, actor, _ in audited(app)] == [
        ("LIMIT_HELD", "limit:wikidata", "ann"),
        ("LIMIT_RELEASED", "limit:wikidata", "ann"),
    ]
