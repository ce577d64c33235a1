"""Limits and rates as a program declares them: rules, the keys of a job, and every mistake."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from enum import Enum, IntEnum, StrEnum
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import pytest

import windlass
from windlass import Context, Job, JobType, State, Windlass, limit, phase, rate
from windlass.client import gather
from windlass.declare.pipeline import next_phase
from windlass.errors import ConfigError, EnqueueError, FlowError, InvalidOption, RegistrationError
from windlass.model.admission import LONGEST_KEY, Rule
from windlass.model.flow import FollowUps, Moment
from windlass.model.job import NewJob
from windlass.policy.limit import Limit

ID = UUID("0190f2c4-1111-7000-8000-000000000001")


class Kind(StrEnum):
    PDF = "pdf"


class Old(str, Enum):  # noqa: UP042
    PDF = "pdf"


class Size(IntEnum):
    LARGE = 3


class Pair(Enum):
    BOTH = (1, 2)


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///nowhere.db")


def domain_of(url: str) -> str:
    return urlsplit(url).netloc


def declare(app: Windlass, *limits: Limit, **options: Any) -> JobType[..., Any]:
    @app.job(limits=list(limits), **options)
    def fetch(url: str, depth: int = 1, *, kind: Kind = Kind.PDF) -> None: ...

    return fetch


def new(job: JobType[..., Any], *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> NewJob:
    return job.options(**(options or {})).call(*args, **kwargs).new_job(job._app.settings)


def keys(job: JobType[..., Any], *args: Any, **kwargs: Any) -> tuple[str, ...]:
    return new(job, *args, **kwargs).limits


# Rules


def test_a_limit_is_so_many_at_a_time_and_a_rate_is_a_period() -> None:
    assert limit("domain", 2).rule == Rule(name="domain", most=2)
    assert rate("wikidata", 5, every="1s").rule == Rule(name="wikidata", period=0.2, burst=1)
    assert (limit("domain", 2).name, rate("wikidata", 5, every=1).name) == ("domain", "wikidata")


@pytest.mark.parametrize(
    ("count", "every", "period", "burst"),
    [
        (5, "1s", 0.2, 1),  # spaced evenly
        (1, "1h", 3600.0, 1),
        (10, 1, 0.1, 1),
        (29, "1s", 1 / 29, 2),
        (100, "1s", 0.01, 10),
        (6_000, timedelta(minutes=1), 0.01, 10),
        (1_000_000, "1s", 1e-6, 100_000),
    ],
)
def test_a_burst_is_a_tenth_of_a_seconds_worth_and_at_least_one(
    count: int, every: Any, period: float, burst: int
) -> None:
    rule = rate("api", count, every=every).rule

    assert rule.period == pytest.approx(period)
    assert rule.burst == burst
    assert rate("api", count, every=every, burst=3).rule.burst == 3


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: limit("x", 0), r"limit\('x', 0\): a limit is a whole number from 1 to \d+, not 0; .* windlass gates"),
        (lambda: limit("x", -1), "from 1 to 2147483647, not -1"),
        (lambda: limit("x", True), "not True"),
        (lambda: limit("x", 2.0), r"not 2\.0"),  # type: ignore[arg-type]
        (lambda: limit("x", "2"), "not '2'"),  # type: ignore[arg-type]
        (lambda: limit("x", 2**31), "from 1 to 2147483647, not 2147483648"),
        (lambda: rate("x", 5), r"rate\('x', 5\) has no period; add one: rate\('x', 5, every=\"1s\"\)"),
        (lambda: rate("x", 0, every="1s"), r"rate\('x', 0\): the count is a whole number from 1 .*make the period lon"),
        (lambda: rate("x", -5, every="1s"), "not -5"),
        (lambda: rate("x", 0.5, every="1s"), r"not 0\.5; write rate\('x', 1, every=\"2s\"\)"),  # type: ignore[arg-type]
        (lambda: rate("x", 1.5, every="1m"), r"not 1\.5; write rate\('x', 3, every=\"2m\"\)"),  # type: ignore[arg-type]
        (lambda: rate("x", float("nan"), every="1s"), r"not nan; .*make the period longer"),  # type: ignore[arg-type]
        (lambda: rate("x", True, every="1s"), "not True"),
        (lambda: rate("x", 5, every=0), r"rate\('x', 5\): every=0 is not a period; .*every=\"1s\""),
        (lambda: rate("x", 5, every=timedelta(0)), "is not a period"),
        (lambda: rate("x", 5, every="-1s"), r"every: '-1s' is not a duration; write it like"),
        (lambda: rate("x", 5, every=-1), "every: -1 is negative"),
        (lambda: rate("x", 5, every="second"), "every: 'second' is not a duration; write it like"),
        (lambda: rate("x", 5, every=float("nan")), "negative or not finite"),
        (lambda: rate("x", 5, every=True), "every: True is not a duration"),
        (lambda: rate("x", 5, every=[1]), "is not a duration"),  # type: ignore[arg-type]
        (lambda: rate("x", 2_000_000, every="1s"), "more than a million per second"),
        (
            lambda: rate("x", 5, every="1s", burst=0),
            "burst is a whole number from 1 .*, not 0; 1 is an even spacing",
        ),
        (lambda: rate("x", 5, every="1s", burst=-1), "not -1"),
        (lambda: rate("x", 5, every="1s", burst=True), "not True"),
        (lambda: rate("x", 5, every="1s", burst=1.5), r"not 1\.5"),  # type: ignore[arg-type]
        (lambda: limit("", 1), "the name of a limit is empty"),
        (lambda: limit(" x", 1), "the name of a limit begins or ends with white space"),
        (lambda: limit("a\nb", 1), "contains a control character"),
        (lambda: limit("n" * 101, 1), "has 101 characters; 100 is the most"),
        (lambda: limit(3, 1), "the name of a limit must be text, not int"),  # type: ignore[arg-type]
        (lambda: rate("a:b", 5, every=1), "has a ':' in it, which separates a name from its value: 'a:b'; write '-'"),
        (lambda: limit("x", 1, scope="tenants"), "scope='tenants'; did you mean 'tenant'"),  # type: ignore[arg-type]
        (lambda: limit("x", 1, scope=None), "scope=None; there are: global, tenant"),  # type: ignore[arg-type]
        (lambda: limit("x", 1, key=3), "key=3; give the name of an argument, or a function"),  # type: ignore[arg-type]
        (lambda: rate("x", 1, every=1, key=["a"]), r"key=\['a'\]; give the name"),  # type: ignore[arg-type]
    ],
)
def test_an_impossible_rule_is_refused_with_its_reason(declare: Callable[[], Limit], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        declare()


# Keys


@pytest.mark.parametrize(
    ("limit", "key"),
    [
        (limit("domain", 2, key=domain_of), "domain:example.org"),
        (limit("domain", 2, key="url"), "domain:https://example.org/a"),
        (limit("url", 2), "url:https://example.org/a"),
        (limit("level", 2, key="depth"), "level:1"),  # the default, as the handler will see it
        (limit("kind", 2), "kind:pdf"),
        (limit("tenant", 20), "tenant:acme"),
        (limit("queue", 20), "queue:pages"),
        (limit("type", 20), "type:fetch"),
        (limit("export", 1), "export"),
        (rate("wikidata", 5, every="1s"), "wikidata"),
        (limit("place", 2, key=lambda url, depth: f"{depth}-{url[:5]}"), "place:1-https"),
        (limit("all", 2, key=lambda **arguments: "+".join(arguments)), "all:url+depth+kind"),
        (limit("unit", 2, key=lambda depth, unit="m": f"{depth}{unit}"), "unit:1m"),
        (limit("one", 2, key=lambda: "x"), "one:x"),
        (limit("domain", 2, key=partial(domain_of)), "domain:example.org"),
    ],
)
def test_a_key_is_the_rules_name_and_a_value_of_the_job(app: Windlass, limit: Limit, key: str) -> None:
    fetch = declare(app, limit)

    assert keys(fetch, "https://example.org/a", options={"tenant": "acme", "queue": "pages"}) == (key,)


def test_the_jobs_own_fields_come_before_an_argument_of_that_name(app: Windlass) -> None:
    @app.job(limits=[limit("tenant", 2), limit("type", 3, key="type"), limit("queue", 3)])
    def export(tenant: str, type: str, queue: str) -> None: ...

    assert keys(export, "one", "two", "three") == ("tenant:default", "type:two", "queue:default")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Ünicode: 100 %", "Ünicode: 100 %"),
        ("a:b/c", "a:b/c"),
        (" ", " "),
        ("a\nb", "a\nb"),
        (7, "7"),
        (True, "True"),
        (1.5, "1.5"),
        (ID, str(ID)),
        (Kind.PDF, "pdf"),
        (Old.PDF, "pdf"),
        (Size.LARGE, "3"),
    ],
)
def test_values_become_text_from_every_source(app: Windlass, value: Any, text: str) -> None:
    fetch = declare(app, limit("made", 1, key=lambda: value), limit("given", 1))

    assert keys(fetch, "x", options={"limits": {"given": value}}) == (f"made:{text}", f"given:{text}")


def test_several_on_one_job_keep_their_order(app: Windlass) -> None:
    fetch = declare(app, limit("domain", 2, key=domain_of), limit("tenant", 20), rate("api", 5, every="1s"))

    assert keys(fetch, "https://example.org") == ("domain:example.org", "tenant:default", "api")


def test_a_job_has_no_limits_by_default(app: Windlass) -> None:
    assert keys(declare(app), "https://example.org") == ()


@pytest.mark.parametrize(
    ("limit", "tenant", "key"),
    [
        (limit("domain", 2, key=domain_of, scope="tenant"), "acme", "domain:acme/example.org"),
        (limit("export", 2, scope="tenant"), "acme", "export:acme"),
        (limit("domain", 2, key=domain_of, scope="tenant"), "a/b", "domain:a%2Fb/example.org"),
        (limit("export", 2, scope="tenant"), "a/b", "export:a%2Fb"),
    ],
)
def test_a_tenants_scope_counts_each_tenant_separately(app: Windlass, limit: Limit, tenant: str, key: str) -> None:
    assert keys(declare(app, limit), "https://example.org", options={"tenant": tenant}) == (key,)


def test_a_long_key_becomes_its_beginning_and_its_hash(app: Windlass) -> None:
    name = "n" * 100  # the longest
    fetch = declare(app, limit("url", 2), limit(name, 2, key="url"))
    most = LONGEST_KEY - len("url:")

    fits, _ = keys(fetch, "ü" * most)
    long, other = keys(fetch, "ü" * (most + 1))

    whole = "url:" + "ü" * (most + 1)
    assert fits == "url:" + "ü" * most
    assert long == f"{whole[: LONGEST_KEY - 75]}… sha256:{hashlib.sha256(whole.encode()).hexdigest()}"
    assert (len(long), len(other)) == (198, 198)
    assert other.startswith(f"{name}:ü")
    assert long != keys(fetch, "ü" * (most + 2))[0]


# Given at the enqueue


def test_values_of_the_enqueue_come_first(app: Windlass) -> None:
    fetch = declare(app, limit("domain", 2, key=domain_of), limit("tenant", 20), limit("export", 1))
    url = "https://example.org"

    assert keys(fetch, url, options={"limits": {"domain": "other.org"}})[0] == "domain:other.org"
    assert keys(fetch, url, options={"limits": {"export": 7, "tenant": "them"}})[1:] == ("tenant:them", "export:7")
    assert keys(fetch, url, options={"limits": {"domain": None, "tenant": None}}) == ("export",)
    assert keys(fetch, url, options={"limits": {}}) == ("domain:example.org", "tenant:default", "export")
    laid = fetch.options(limits={"domain": "a"}).options(limits={"export": None}).options(priority=3)
    assert laid.call(url).new_job(app.settings).limits == ("domain:a", "tenant:default")


def test_a_given_value_stays_inside_its_scope(app: Windlass) -> None:
    fetch = declare(app, limit("export", 1, scope="tenant"))

    assert keys(fetch, "x", options={"limits": {"export": "big"}, "tenant": "acme"}) == ("export:acme/big",)


def test_a_given_key_replaces_the_call_of_the_function(app: Windlass) -> None:
    def broken(url: str) -> str:
        raise RuntimeError("never called")

    fetch = declare(app, limit("domain", 2, key=broken))

    assert keys(fetch, "x", options={"limits": {"domain": "a"}}) == ("domain:a",)
    assert keys(fetch, "x", options={"limits": {"domain": None}}) == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"domian": "x"}, r"limits: this job type has no limit 'domian'; did you mean 'domain'\?"),
        ({"zzz": None}, "has no limit 'zzz'; there are: domain, export"),
        ({3: "x"}, "has no limit 3"),
        ({"domain": ""}, "limits: the value of 'domain' is empty"),
        ({"domain": "a\0b"}, r"the value of 'domain' has a NUL or half a surrogate pair in it: 'a\\x00b'"),
        ({"domain": "\ud800"}, "half a surrogate pair"),
        ({"domain": ["a"]}, "the value of 'domain' is list, and a key is made of a text, a number or a UUID"),
        ({"domain": b"a"}, "is bytes"),
        ({"domain": date(2026, 1, 1)}, "is date"),
        ({"domain": Pair.BOTH}, "is tuple"),
        (["domain"], r"limits=\['domain'\] is not a dict; write limits="),
        ("domain", "limits='domain' is not a dict"),
        (limit("x", 1), "is not a dict"),
    ],
)
def test_a_wrong_value_at_the_enqueue_is_refused(app: Windlass, given: Any, words: str) -> None:
    fetch = declare(app, limit("domain", 2, key=domain_of), limit("export", 1))

    with pytest.raises(InvalidOption, match=words):
        fetch.options(limits=given)


def test_a_type_without_limits_refuses_a_value_for_one(app: Windlass) -> None:
    with pytest.raises(
        InvalidOption, match=r"has no limit 'domain'; it has none: declare them with @app\.job\(limits="
    ):
        declare(app).options(limits={"domain": "x"})


# Keys that cannot be made


def raising(url: str) -> str:
    raise LookupError(f"no {url}")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (raising, r"limit 'domain': key=raising raised LookupError: no x; fix it, or give it at the enqueue: "),
        (
            lambda url: None,
            "what limit 'domain': key=<lambda> returned is None, and a key is made of .*; return a text",
        ),
        (lambda url: "", "what limit 'domain': key=<lambda> returned is empty"),
        (lambda url: "\0", "has a NUL"),
        (lambda url: "\udfff", "half a surrogate pair"),
        (lambda url: [url], "is list"),
        (lambda url: datetime.now(UTC), "is datetime"),
    ],
)
def test_a_key_that_cannot_be_made_refuses_the_enqueue(app: Windlass, key: Any, words: str) -> None:
    fetch = declare(app, limit("domain", 2, key=key))

    with pytest.raises(EnqueueError, match=words):
        new(fetch, "x")
    with pytest.raises(EnqueueError, match=r"call 1: .*limit 'domain'.*; nothing was enqueued"):
        gather([fetch.options(limits={"domain": "a"}).call("x"), fetch.call("x")], app.settings)


def test_an_argument_that_cannot_be_a_key_refuses_the_enqueue_with_the_way_out(app: Windlass) -> None:
    @app.job(limits=[limit("domain", 2)])
    def fetch(domain: str | None = None, urls: list[str] | None = None) -> None: ...

    with pytest.raises(
        InvalidOption, match=r"limit 'domain': argument 'domain' is None.*\.options\(limits=.*with None"
    ):
        new(fetch)
    with pytest.raises(InvalidOption, match="argument 'domain' is empty"):
        new(fetch, "")
    assert keys(fetch, options={"limits": {"domain": None}}) == ()


# On a job type


async def later(url: str) -> str:
    return url


def positional(url: str, /) -> str:
    return url


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([limit("x", 1, key="ulr")], r"fetch: limit 'x': key: fetch\(\) has no argument 'ulr'; did you mean 'url'\?"),
        (
            [limit("x", 1, key=lambda ulr: 1)],
            r"limit 'x': key=<lambda> asks for 'ulr', and fetch\(\) has no such argum",
        ),
        ([limit("x", 1, key=later)], "limit 'x': key=later is a coroutine"),
        ([limit("x", 1, key=positional)], "limit 'x': key=positional: arguments are passed by name"),
        ([limit("x", 1, key=str)], "limit 'x': key=str"),
        ([limit("x", 1), limit("x", 1, key="url")], "limits names 'x' twice; give one of them another name"),
        ([limit("x", 1), rate("x", 1, every=1)], "limits names 'x' twice"),
        (limit("x", 1), r"limits=limit\('x', …\) is not a list; write: limits=\[limit\(…\), rate\(…\)\]"),
        ("domain", "limits='domain' is not a list"),
        ({"domain": 2}, "is not a list"),
        (None, "limits=None is not a list"),
        (["domain"], r"limits lists 'domain'; write limit\(…\) or rate\(…\)"),
        ([Rule(name="x", most=1)], r"limits lists Rule\("),
    ],
)
def test_limits_that_do_not_fit_are_refused_at_the_declaration(app: Windlass, limits: Any, words: str) -> None:
    with pytest.raises(RegistrationError, match=words):

        @app.job(limits=limits)
        def fetch(url: str) -> None: ...

    assert app._registry.rules() == []
    assert len(app._registry) == 0


def test_the_program_knows_all_its_rules(app: Windlass) -> None:
    export = app.limit("export", 1)
    wikidata = app.rate("wikidata", 5, every="1s", burst=2)
    declare(app, limit("domain", 2, key=domain_of), wikidata)

    @app.job(limits=[limit("domain", 2), export, limit("tenant", 20)])
    def other(domain: str) -> None: ...

    assert app.rate("wikidata", 5, every="1s", burst=2) == wikidata  # the same twice is one
    assert app._registry.rules() == [
        Rule(name="export", most=1),
        Rule(name="wikidata", period=0.2, burst=2),
        Rule(name="domain", most=2),
        Rule(name="tenant", most=20),
    ]
    assert keys(other, "example.org") == ("domain:example.org", "export", "tenant:default")


def test_one_name_has_one_rule(app: Windlass) -> None:
    declare(app, limit("domain", 2, key=domain_of))

    with pytest.raises(
        RegistrationError,
        match=r"limit 'domain' is 2 at a time by .*fetch and 3 at a time by .*other; one name has one rule: declare",
    ):

        @app.job(limits=[limit("before", 1), limit("domain", 3)])
        def other(domain: str) -> None: ...

    with pytest.raises(
        RegistrationError, match=r"is 2 at a time by .* and one every 200ms, 1 at once by app\.rate\(…\)"
    ):
        app.rate("domain", 5, every="1s")
    with pytest.raises(RegistrationError, match=r"by .*fetch and 1 at a time by app\.limit\(…\)"):
        app.limit("domain", 1)
    assert app._registry.rules() == [Rule(name="domain", most=2)]
    assert app._registry.types == ("fetch",)


def test_a_wrong_rule_of_the_app_is_refused_like_any_other(app: Windlass) -> None:
    with pytest.raises(ConfigError, match="has no period"):
        app.rate("wikidata", 5)
    with pytest.raises(ConfigError, match="a limit is a whole number from 1"):
        app.limit("export", 0)
    assert app._registry.rules() == []


# Beyond the single job


def record(job: NewJob, **changes: Any) -> Job:
    blank: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    known = {name: getattr(job, name) for name in ("id", "type", "input", "tenant", "queue", "pipeline", "phase")}
    return Job(**(blank | known | {"status": State.RUNNING} | changes))


def test_each_phase_of_a_pipeline_has_its_types_limits(app: Windlass) -> None:
    @app.job(limits=[limit("domain", 2, key=domain_of)])
    async def fetch(url: str, depth: int = 1) -> str:
        return url

    @app.job(queue="models", limits=[rate("model", 5, every="1s", key="depth"), limit("queue", 3), limit("tenant", 9)])
    async def ask(ctx: Context, depth: int = 7) -> None: ...

    @app.job
    async def store(ctx: Context) -> None: ...

    site = app.pipeline("site", fetch, phase(ask, name="asking"), store)
    first = site.options(tenant="acme").call("https://example.org").new_job(app.settings)
    second = next_phase(app._registry, record(first))
    third = next_phase(app._registry, record(first, type="ask", phase="asking"))

    assert first.limits == ("domain:example.org",)
    assert second is not None
    assert second.limits == ("model:7", "queue:models", "tenant:acme")
    assert third is not None
    assert third.limits == ()
    assert site.options(limits={"domain": None}).call("x").new_job(app.settings).limits == ()
    with pytest.raises(InvalidOption, match="has no limit 'model'; there are: domain"):
        site.options(limits={"model": "x"})


def test_keys_of_a_phase_that_cannot_be_made_raise_before_the_previous_phase_ends(app: Windlass) -> None:
    @app.job
    async def fetch(url: str) -> None: ...

    @app.job(limits=[limit("domain", 2, key=raising)])
    async def parse(url: str) -> None: ...

    site = app.pipeline("site", fetch, parse)
    job = record(site.call("x").new_job(app.settings))

    with pytest.raises(
        FlowError, match="cannot go on to phase 'parse': limit 'domain': key=raising raised LookupError"
    ):
        next_phase(app._registry, job)


def test_a_follow_up_has_the_keys_that_can_be_made_ahead(app: Windlass) -> None:
    @app.job(queue="alarms", limits=[limit("tenant", 2), limit("queue", 3), limit("mail", 1, scope="tenant")])
    def alarm(id: str) -> None: ...

    @app.job(limits=[limit("type", 1)], on_succeeded=alarm)
    def tidy() -> None: ...

    @app.job(on_dead=alarm, on_cancelled=tidy)
    def work() -> None: ...

    kept = new(work, options={"tenant": "acme"}).follow_ups
    assert kept is not None
    tree = msgspec.json.decode(kept, type=FollowUps)
    assert tree[Moment.DEAD].limits == ("tenant:acme", "queue:alarms", "mail:acme")
    assert tree[Moment.CANCELLED].limits == ("type:tidy",)
    assert tree[Moment.CANCELLED].then[Moment.SUCCEEDED].limits == tree[Moment.DEAD].limits


def test_a_follow_up_with_a_key_of_arguments_is_refused(app: Windlass) -> None:
    @app.job(limits=[limit("id", 1)])
    def alarm(id: str) -> None: ...

    with pytest.raises(RegistrationError, match=r"on_dead: 'alarm' has the limit 'id' with a key of arguments.*let it"):

        @app.job(on_dead=alarm)
        def work() -> None: ...

    @app.job(on_dead="alarm")
    def work_too() -> None: ...

    with pytest.raises(EnqueueError, match="on_dead of 'work_too': 'alarm' has the limit 'id'"):
        new(work_too)


def test_graphs_and_batches_count_like_any_enqueue(app: Windlass) -> None:
    fetch = declare(app, limit("domain", 2, key=domain_of))
    graph = app.graph()
    first = graph.add("first", fetch.call("https://a.org"))
    graph.add("second", fetch.options(limits={"domain": "z"}).call("https://b.org"), after=[first])
    jobs, _, _ = gather([fetch.call("https://c.org"), fetch.call("https://d.org")], app.settings)

    assert [job.limits for job in graph._new_jobs().values()] == [("domain:a.org",), ("domain:z",)]
    assert [job.limits for job in jobs] == [("domain:c.org",), ("domain:d.org",)]


def test_per_and_rate_are_part_of_the_package() -> None:
    assert {"limit", "rate"} <= set(windlass.__all__)
