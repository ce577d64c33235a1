"""Keys and consequences as an enqueue makes them: what they are made of, and every mistake's own sentence."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date
from typing import Any

import msgspec
import pytest

from windlass import JobType, Windlass, unique
from windlass.client import gather
from windlass.errors import (
    ConfigError,
    EnqueueError,
    IdempotencyConflict,
    InvalidOption,
    RegistrationError,
    UnknownType,
)
from windlass.model.flow import FollowUps, Moment
from windlass.model.job import Edge, Key, NewJob, Wait, new_id
from windlass.model.state import FINAL, State
from windlass.policy.unique import REFUSING_STATES, UNFINISHED_STATES, merge_repeated

DAY = 86_400.0
ALL_BUT_LOST = ("queued", "running", "failed", "waiting", "succeeded")


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///nowhere.db")


@dataclass
class Place:
    street: str
    number: int = 1


def declare(app: Windlass, **options: Any) -> JobType[..., Any]:
    @app.job(**options)
    def report(
        user_id: int, day: date = date(2026, 1, 1), *, tags: set[str] | None = None, at: Place | None = None
    ) -> None: ...

    return report


def new(job: JobType[..., Any], *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> NewJob:
    return job.options(**(options or {})).call(*args, **kwargs).new_job(job._app.settings)


def key(job: NewJob) -> Key:
    assert job.unique is not None
    return job.unique


# What a key is made of


def test_a_job_has_no_key_by_default(app: Windlass) -> None:
    job = new(declare(app), 1)

    assert (job.key, job.unique, job.idempotency, job.follow_ups, job.followed) == (None, None, None, None, False)


def test_all_arguments_make_the_key_as_the_handler_will_see_them(app: Windlass) -> None:
    report = declare(app, unique=True)

    plain, spelt, turned = new(report, 1), new(report, day="2026-01-01", user_id=1), new(report, 1, date(2026, 1, 1))
    other = new(report, 1, tags={"b", "a"}, at=Place("Quay"))

    assert plain.key == '{"at":null,"day":"2026-01-01","tags":null,"user_id":1}'
    assert plain.key == spelt.key == turned.key
    assert other.key == '{"at":{"street":"Quay","number":1},"day":"2026-01-01","tags":["a","b"],"user_id":1}'
    assert other.key == new(report, 1, tags=["b", "a"], at={"number": 1, "street": "Quay"}).key


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("user_id", "7"),
        (("user_id",), "7"),
        ("day", "2026-01-01"),
        (["day", "user_id"], '{"day":"2026-01-01","user_id":7}'),
        (lambda user_id: f"user-{user_id}", "user-7"),
        (lambda day, user_id: [user_id, day.year], "[7,2026]"),
        (lambda **arguments: sorted(arguments), '["at","day","tags","user_id"]'),
        (lambda user_id, unit="u": f"{unit}{user_id}", "u7"),
    ],
)
def test_chosen_arguments_or_a_function_of_them_make_the_key(app: Windlass, by: Any, text: str) -> None:
    assert new(declare(app, unique=by), 7).key == text
    assert new(declare(Windlass("sqlite:///x.db")), 7, options={"unique": by}).key == text


def test_texts_that_no_user_could_write_are_shown_as_json_and_never_collide(app: Windlass) -> None:
    @app.job(unique="name")
    def greet(name: str) -> None: ...

    shown = [new(greet, name).key for name in ("Ann", "", " ", "a\nb", '"', '""', "Ünicode: 100 %")]

    assert shown == ["Ann", '""', '" "', '"a\\nb"', '"\\""', '"\\"\\""', "Ünicode: 100 %"]
    assert len(set(shown)) == len(shown)


def test_a_default_that_cannot_travel_equals_nothing_that_is_given(app: Windlass) -> None:
    nothing: Any = object()

    @app.job(unique=True)
    def greet(name: str = nothing) -> None: ...

    @app.job(unique="name")
    def greet_too(name: str = nothing) -> None: ...

    assert (new(greet).key, new(greet, "Ann").key) == ("{}", '{"name":"Ann"}')
    assert (new(greet_too).key, new(greet_too, "Ann").key) == ("{}", "Ann")


def test_a_long_text_is_stored_as_its_beginning_and_its_hash(app: Windlass) -> None:
    report = declare(app, unique="user_id")
    text = "ü" * 300

    fits, long = (new(report, 1, options={"key": text[:length]}).key for length in (255, 300))

    assert fits == text[:255]
    assert long == f"{'ü' * 180}… sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert len(long) == 253
    assert key(new(report, 1, options={"key": text})).key == long
    repeated = new(report, 1, options={"idempotency_key": text}).idempotency
    assert repeated is not None
    assert repeated.key == long


# Where a key refuses


def test_a_key_refuses_inside_its_tenant_and_type_in_all_states_but_the_lost_ones(app: Windlass) -> None:
    job = new(declare(app, unique="user_id"), 7, options={"tenant": "acme"})

    assert job.unique == Key(scope="unique/acme/report", key="7", states=ALL_BUT_LOST)
    assert job.followed
    assert set(State) - set(REFUSING_STATES) == {State.DEAD, State.CANCELLED}


def test_a_policy_sets_states_window_scope_and_how_long_it_is_kept(app: Windlass) -> None:
    report = declare(app, unique=unique(by="user_id", states=["running", State.QUEUED], window="1h", scope="global"))

    assert key(new(report, 7)) == Key(scope="unique/*/report", key="7", states=("queued", "running"), window=3600.0)


def test_unfinished_is_one_word_for_the_states_of_a_job_that_has_not_ended(app: Windlass) -> None:
    report = declare(app, unique=unique("user_id", states="unfinished"))

    assert key(new(report, 7)).states == ("queued", "running", "failed", "waiting")
    assert set(State) - set(UNFINISHED_STATES) == FINAL


@pytest.mark.parametrize(
    "options",
    [
        {"unique_forever": "user_id"},
        {"unique_forever": unique("user_id")},
        {"unique": unique(by="user_id", forever=True)},
    ],
)
def test_for_ever_is_kept_beyond_the_history(app: Windlass, options: dict[str, Any]) -> None:
    kept = key(new(declare(app, **options), 7))

    assert (kept.forever, kept.states, kept.window, kept.key) == (True, ALL_BUT_LOST, None, "7")


def test_the_enqueue_overrides_the_declaration(app: Windlass) -> None:
    report = declare(app, unique=unique(by="user_id", window="1h"))
    free = declare(Windlass("sqlite:///x.db"))

    given = new(report, 7, options={"key": "mine"})
    chosen = new(report, 7, options={"unique": "day"})
    both = new(report, 7, options={"unique": unique(scope="global"), "key": "mine"})
    none = new(report, 7, options={"unique": False})
    named = new(report, 7, options={"unique": False, "key": "order-7"})
    plain = new(free, 7, options={"key": "order-7"})

    assert (given.key, key(given).key, key(given).window) == ("mine", "mine", 3600.0)
    assert (chosen.key, key(chosen).window) == ("2026-01-01", None)
    assert (key(both).scope, key(both).key) == ("unique/*/report", "mine")
    assert (none.key, none.unique) == (None, None)
    assert (named.key, named.unique) == ("order-7", None)
    assert key(plain) == Key(scope="unique/default/report", key="order-7", states=ALL_BUT_LOST)
    later = report.options(unique=False).options(priority=3).call(7).new_job(app.settings)
    assert (later.unique, later.priority) == (None, 3)


@pytest.mark.parametrize(("tenant", "other"), [("a/b", "a"), ("*", "x"), ("a%2Fb", "a/b")])
def test_no_tenants_name_looks_like_another_scope(app: Windlass, tenant: str, other: str) -> None:
    @app.job(type="b/c", unique=True)
    def one() -> None: ...

    @app.job(type="c", unique=unique(scope="global"))
    def two() -> None: ...

    @app.job(type="d")
    def three() -> None: ...

    scopes = [
        key(new(job, options={"tenant": name, "unique": given})).scope
        for job, given in ((one, None), (two, None), (two, True), (three, True))
        for name in (tenant, other)
    ]
    assert len(set(scopes)) == len(scopes) - 1  # only the global one is shared


# Idempotency


def test_an_idempotency_key_remembers_what_it_was_used_for(app: Windlass) -> None:
    report = declare(app)

    def used(*args: Any, **kwargs: Any) -> Key:
        made = new(report, *args, options={"idempotency_key": "req-1", "tenant": "acme"}, **kwargs).idempotency
        assert made is not None
        return made

    first = used(1, day=date(2026, 1, 2))
    assert (first.scope, first.key, first.states, first.window, first.forever) == (
        "idempotency/acme",
        "req-1",
        None,
        DAY,
        False,
    )
    assert first == used(day=date(2026, 1, 2), user_id=1)
    assert first.fingerprint != used(2, day=date(2026, 1, 2)).fingerprint

    @app.job(type="other")
    def report_too(user_id: int, day: date) -> None: ...

    other = new(report_too, 1, date(2026, 1, 2), options={"idempotency_key": "req-1"}).idempotency
    assert other is not None
    assert other.fingerprint != first.fingerprint


def test_how_long_it_answers_is_a_setting() -> None:
    job = new(declare(Windlass("sqlite:///x.db", idempotency_window="2h")), 1, options={"idempotency_key": "k"})

    assert job.idempotency is not None
    assert job.idempotency.window == 7200.0
    with pytest.raises(ConfigError, match="idempotency_window must be longer than nothing"):
        Windlass("sqlite:///x.db", idempotency_window=0)


# Many at once


def test_two_calls_with_one_key_are_one_job_and_the_later_is_answered_with_the_earlier(app: Windlass) -> None:
    report = declare(app, unique="user_id")
    jobs, _, _ = gather([report.call(1), report.call(2), report.call(1), report.call(1)], app.settings)

    fresh, repeated = merge_repeated(jobs)

    assert list(fresh) == jobs[:2]
    assert repeated == {jobs[2].id: jobs[0].id, jobs[3].id: jobs[0].id}


def test_a_repetition_is_found_by_either_of_its_keys(app: Windlass) -> None:
    report = declare(app, unique="user_id")
    calls = [
        report.call(1),
        report.options(idempotency_key="x").call(1),  # refused by the first one's unique key
        report.options(idempotency_key="x", unique=False).call(1),  # so its own key leads there, too
    ]
    jobs, _, _ = gather(calls, app.settings)

    fresh, repeated = merge_repeated(jobs)

    assert list(fresh) == jobs[:1]
    assert set(repeated.values()) == {jobs[0].id}


def test_one_idempotency_key_for_two_inputs_refuses_all_of_them(app: Windlass) -> None:
    report = declare(app)
    jobs, _, _ = gather([report.options(idempotency_key="x").call(n) for n in (1, 1, 2)], app.settings)

    with pytest.raises(
        IdempotencyConflict, match=r"two of these calls have the idempotency key 'x'.*nothing was enqueued"
    ):
        merge_repeated(jobs)


def test_what_waits_for_a_repetition_waits_for_the_one_that_is_there() -> None:
    shared = Key(scope="unique/default/a", key="k")
    first, second = (NewJob(id=new_id(), type="a", input="{}", key="k", unique=shared) for _ in range(2))
    edges = (Edge(first.id), Edge(second.id))
    wait, links = Wait(edges=edges, need=2), (("one", first.id), ("two", second.id))
    join = NewJob(id=new_id(), type="b", input="{}", wait=wait, links=links)

    fresh, _ = merge_repeated([first, second, join])

    assert fresh[1].wait == Wait(edges=(Edge(first.id),), need=1)
    assert fresh[1].links == (("one", first.id), ("two", first.id))


def test_jobs_without_keys_are_left_as_they_are() -> None:
    jobs = [NewJob(id=new_id(), type="a", input="{}") for _ in range(3)]

    assert merge_repeated(jobs) == (jobs, {})


# Mistakes


def takes_none(*values: int) -> str:
    return ""


async def later(user_id: int) -> str:
    return ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("user", r"report\(\) has no argument 'user'; did you mean 'user_id'\?"),
        (("day", "zzz"), "has no argument 'zzz'; there are: at, day, tags, user_id"),
        ((), r"unique=\(\); give True, names of arguments, a function of them, or unique\(…\)"),
        (3, "unique=3; give True"),
        (lambda user: user, r"unique=<lambda> asks for 'user', and report\(\) has no such argument; did you mean"),
        (takes_none, "unique=takes_none: arguments are passed by name, and 'values' takes only positional ones"),
        (later, "unique=later is a coroutine"),
        (type, "unique=type"),
    ],
)
def test_a_wrong_key_is_refused_at_the_declaration_and_at_the_enqueue(app: Windlass, given: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        declare(app, unique=given)
    assert len(app._registry) == 0
    with pytest.raises(InvalidOption, match=message):
        declare(app).options(unique=given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"states": ["queued", "runing"]}, "there is no state 'runing'; did you mean 'running'"),
        ({"states": ["running"]}, "must name 'queued'"),
        ({"states": []}, "must name 'queued'"),
        ({"window": "soon"}, r"unique\(window=…\): 'soon' is not a duration"),
        ({"window": 0}, "refuses nothing"),
        ({"states": "unfinshed"}, "there is no state 'unfinshed'; did you mean 'unfinished'"),
        ({"states": ["unfinished", "succeeded"]}, "'unfinished' stands alone; write: states='unfinished'"),
        ({"states": "unfinished", "forever": True}, "name 'succeeded' among its states"),
        ({"scope": "world"}, "there are: global, tenant"),
        ({"scope": "globl"}, "did you mean 'global'"),
        ({"window": "1h", "forever": True}, "is not for ever"),
        ({"states": ["queued"], "forever": True}, "name 'succeeded'"),
    ],
)
def test_the_error_for_an_impossible_policy_names_the_reason(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        unique(**options)


def test_unique_and_for_ever_at_once_is_once_too_often(app: Windlass) -> None:
    with pytest.raises(RegistrationError, match="unique_forever is unique already"):
        declare(app, unique=True, unique_forever=True)
    with pytest.raises(RegistrationError, match="is not for ever"):
        declare(app, unique_forever=unique(window="1h"))
    assert new(declare(app, unique=False, unique_forever=True), 1).unique is not None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "unique=<lambda> returned None; return a text"),
        (object(), "unique=<lambda> returned object, which is not JSON"),
        ("\ud800", "unique=<lambda> returned str, which is not JSON"),
    ],
)
def test_a_function_that_answers_nonsense_refuses_the_enqueue_and_names_the_call(
    app: Windlass, answer: object, message: str
) -> None:
    report = declare(app, unique=lambda user_id: "fine" if user_id == 0 else answer)

    with pytest.raises(InvalidOption, match=message):
        new(report, 1)
    with pytest.raises(InvalidOption, match=f"call 1: {message}.*; nothing was enqueued"):
        gather([report.call(0), report.call(1)], app.settings)


@pytest.mark.parametrize("option", ["key", "idempotency_key"])
@pytest.mark.parametrize(
    ("text", "message"), [("", "is empty"), ("a\nb", "contains a control character"), (7, "must be text")]
)
def test_a_key_that_no_user_could_read_is_refused(app: Windlass, option: str, text: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=f"{option} {message}"):
        declare(app).options(**{option: text})


# Consequences


def kept(job: NewJob) -> FollowUps:
    assert job.follow_ups is not None
    return msgspec.json.decode(job.follow_ups, type=FollowUps)


def test_follow_ups_are_kept_on_the_job_with_all_that_they_need(app: Windlass) -> None:
    @app.job(queue="ops", priority=5, max_attempts=9)
    def page(id: str, error: dict[str, Any] | None) -> None: ...

    @app.job(on_dead=page, on_succeeded="thank")
    def work(n: int) -> int:
        return n

    @app.job(type="thank")
    def say_thanks(output: int, input: dict[str, Any], times: int = 1) -> None: ...

    with pytest.raises(
        EnqueueError, match="on_succeeded of 'work': 'thank' has the parameter 'times', and a follow-up"
    ):
        new(work, 1)

    other = Windlass("sqlite:///x.db", max_attempts=2)
    other.job(queue="ops", priority=5, max_attempts=9)(page._definition.fn)

    @other.job(type="thank")
    def thank(output: int, input: dict[str, Any]) -> None: ...

    job = new(other.job(on_dead="page", on_succeeded="thank")(work._definition.fn), 1)
    follow = kept(job)
    assert job.followed
    assert follow.keys() == {Moment.DEAD, Moment.SUCCEEDED}
    dead, succeeded = follow[Moment.DEAD], follow[Moment.SUCCEEDED]
    assert (dead.type, dead.names, dead.queue, dead.priority, dead.max_attempts) == (
        "page",
        ("id", "error"),
        "ops",
        5,
        9,
    )
    assert (succeeded.type, succeeded.names, succeeded.max_attempts) == ("thank", ("output", "input"), 2)


def test_a_chain_goes_along_and_a_type_that_follows_itself_does_so_once(app: Windlass) -> None:
    @app.job(on_dead="second")
    def first(id: str) -> None: ...

    @app.job(on_dead="third")
    def second(id: str) -> None: ...

    @app.job(on_dead="first", on_cancelled="third")
    def third(id: str) -> None: ...

    step, types = kept(new(first, "x")), []
    while step:
        types.append(step[Moment.DEAD].type)
        step = step[Moment.DEAD].then
    assert types == ["second", "third", "first"]
    again = kept(new(third, "x"))[Moment.CANCELLED]
    assert (again.type, again.then) == ("third", {})


def test_an_unknown_follow_up_is_found_by_the_first_enqueue_and_by_a_worker(app: Windlass) -> None:
    @app.job(on_dead="clean")
    def work(n: int) -> None: ...

    @app.job
    def cleanup(id: str) -> None: ...

    message = "on_dead of 'work': no job type 'clean' in this program; did you mean 'cleanup'"
    with pytest.raises(UnknownType, match=message):
        work.enqueue(1)
    with pytest.raises(UnknownType, match=f"call 0: {message}"):
        app.enqueue_many([work.call(1)])
    with pytest.raises(UnknownType, match=message):
        app.worker()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "on_dead=3; give a job type of this program, or its type's name"),
        (" ", "on_dead=' '; give a job type"),
        (len, "give a job type"),
    ],
)
def test_a_follow_up_that_is_no_job_type_is_refused(app: Windlass, given: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        declare(app, on_dead=given)
    assert len(app._registry) == 0


def test_a_follow_up_that_asks_for_more_or_is_unique_is_refused_where_it_is_declared(app: Windlass) -> None:
    @app.job
    def greedy(id: str, money: int) -> None: ...

    @app.job(unique="id")
    def only(id: str) -> None: ...

    with pytest.raises(
        RegistrationError, match=r"declare.*: on_dead: 'greedy' has the parameter 'money'.*id, input, out"
    ):
        declare(app, on_dead=greedy)
    with pytest.raises(RegistrationError, match="on_cancelled: 'only' is unique"):
        declare(app, on_cancelled=only)


# The audit's action


def test_a_type_has_its_own_action_for_a_success_or_none(app: Windlass) -> None:
    message = [
        declare(Windlass("sqlite:///x.db"), **options)._definition.audit
        for options in (
            {},
            {"audit": True},
            {"audit": "EMAIL_SENT"},
            {"audit": False},
        )
    ]

    assert message == ["JOB_SUCCEEDED", "JOB_SUCCEEDED", "EMAIL_SENT", None]


@pytest.mark.parametrize(
    "action", ["email_sent", "", "EMAIL SENT", "2SENT", "JOB_DEAD", "JOB_REPLAYED", "X" * 201, 3, None]
)
def test_a_text_that_is_no_action_is_refused(app: Windlass, action: Any) -> None:
    with pytest.raises(RegistrationError, match=r"audit=.* is no action for a success; write it like 'EMAIL_SENT'"):
        declare(app, audit=action)
