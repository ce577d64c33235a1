"""Limits and rates as a program declares them, and the keys by which its jobs count against them.

`limit("domain", 2, key=domain_of)` lets two jobs of one domain run at a time. `rate("wikidata", 5, every="1s")` lets
five jobs start per second. A rule has a name, which means the same rule everywhere on one database. A key is the rule's
name and a value, such as `domain:example.org`. Keys are made of a job's arguments at the enqueue, because no store can
call a program's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from windlass.clock import Duration, seconds, spell
from windlass.config import suggest
from windlass.errors import ConfigError, EnqueueError, InvalidOption
from windlass.model.admission import APART, LONGEST_KEY, Rule, key_of
from windlass.names import name_problem
from windlass.payload.signature import Signature
from windlass.policy.arguments import name_of, read_parameters, select_arguments
from windlass.policy.unique import SCOPES, Scope, escape_tenant, shorten_key

if TYPE_CHECKING:
    from windlass.declare.registry import Definition

LONGEST_NAME = 100  # characters; a key that is cut still begins with the whole name
MOST = 2**31 - 1  # the largest integer of a database column
SHORTEST_PERIOD = 1e-6  # seconds; the stores measure no shorter time
LONGEST_HOLD = 86_400.0  # seconds for which a bucket may be held; a gate closes for longer
LEAST_COUNT, MOST_PARTS = 0.001, 1_000  # bounds of a fraction that an error message rewrites in whole numbers
AT_ONCE = 0.1  # seconds: a burst is the tokens of this time, unless a rate sets `burst`
JOB_FIELDS = ("tenant", "queue", "type")
"""Rules of these names count by the job's own field, if the rule has no key."""

KeyBy = str | Callable[..., object]
"""The name of an argument, or a function that takes arguments by their names."""

Value = str | int | float | UUID | Enum
"""The types of a key's value. It is stored as text, an enum by its value."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, and how the key of a job that counts against the rule is made."""

    rule: Rule
    key: KeyBy | None = None
    scope: str = "global"
    names: tuple[str, ...] = ()  # of the arguments that make the key; `bind_limits` sets them

    @property
    def name(self) -> str:
        """The name of the rule, the same on the whole database."""
        return self.rule.name

    @property
    def is_keyed(self) -> bool:
        """Whether there is a key per value: then no job counts against the bare name."""
        return self.key is not None or self.name in JOB_FIELDS


def limit(name: str, most: int, *, key: KeyBy | None = None, scope: Scope = "global") -> Limit:
    """Run at most `most` jobs of one key at a time: `@app.job(limits=[limit("domain", 2, key=domain_of)])`.

    `key` is what is counted separately: the name of an argument, or a function that takes arguments by their names.
    Without a key, `tenant`, `queue` and `type` mean the job's own, and any other name means the argument of that name;
    if the handler has no such argument, all jobs share one key. `scope="tenant"` counts each tenant separately.
    """
    what = f"limit({name!r}, {most!r})"
    _check_count(most, f"{what}: a limit", "to let nothing run for a while: windlass gates pause --type …")
    return Limit(
        rule=Rule(name=_check_name(name), most=most), key=_check_key(what, key), scope=_check_scope(what, scope)
    )


def rate(
    name: str,
    count: int,
    *,
    every: Duration | None = None,
    burst: int | None = None,
    key: KeyBy | None = None,
    scope: Scope = "global",
) -> Limit:
    """Start at most `count` jobs of one key per period: `@app.job(limits=[rate("wikidata", 5, every="1s")])`.

    Time is the database's. Starts are spaced evenly: five per second is one every 200 ms. After a pause, `burst` jobs
    may start at once; its default is the number that belongs to a tenth of a second, and at least 1. `every` has no
    default. `key` and `scope` are as in `limit(…)`.
    """
    what = f"rate({name!r}, {count!r})"
    if every is None:
        raise ConfigError(f'{what} has no period; add one: rate({name!r}, {count!r}, every="1s")')
    length = seconds(every, what=f"{what}: every")
    _check_count(count, f"{what}: the count", _suggest_whole_count(name, count, length))
    if length == 0:
        raise ConfigError(f'{what}: every={every!r} is not a period; write for example: every="1s"')
    if length / count < SHORTEST_PERIOD:
        raise ConfigError(f"{what}: more than a million per second are not counted; leave the rate out")
    if burst is None:
        burst = max(1, int(count / length * AT_ONCE))
    _check_count(burst, f"{what}: burst", "1 is an even spacing")
    rule = Rule(name=_check_name(name), period=length / count, burst=burst)
    return Limit(rule=rule, key=_check_key(what, key), scope=_check_scope(what, scope))


def describe_rule(rule: Rule) -> str:
    """Describe a rule, for messages."""
    if rule.period is None:
        return f"{rule.most} at a time"
    return f"one every {spell(rule.period)}, {rule.burst} at once"


# On a job type


def bind_limits(given: object, signature: Signature) -> tuple[Limit, ...]:
    """Check the limits of a declaration, and find the handler's parameters that make their keys."""
    if isinstance(given, (str, Limit, Mapping)) or not isinstance(given, Sequence):
        shown = f"limit({given.name!r}, …)" if isinstance(given, Limit) else repr(given)
        raise ConfigError(f"limits={shown} is not a list; write: limits=[limit(…), rate(…)]")
    limits: dict[str, Limit] = {}
    for limit in given:
        if not isinstance(limit, Limit):
            raise ConfigError(f"limits lists {limit!r}; write limit(…) or rate(…), or what app.rate(…) returned")
        if limit.name in limits:
            raise ConfigError(f"limits names {limit.name!r} twice; give one of them another name")
        limits[limit.name] = _bind_limit(limit, signature)
    return tuple(limits.values())


def _bind_limit(limit: Limit, signature: Signature) -> Limit:
    key, what = limit.key, f"limit {limit.name!r}: key"
    if key is None and limit.name not in JOB_FIELDS and limit.name in signature.names:
        key = limit.name
    if key is None:
        return limit
    names = select_arguments([key], signature, what) if isinstance(key, str) else read_parameters(key, signature, what)
    return msgspec.structs.replace(limit, key=key, names=names)


# The keys of one job


def keys_of(
    definition: Definition,
    input: str,
    *,
    tenant: str,
    queue: str,
    given: Mapping[str, str | None] | None = None,
    lenient: bool = False,
) -> tuple[str, ...]:
    """The keys that a job counts against. `given`: values from the enqueue; `lenient`: as in `Signature.unbind`."""
    given = given or {}
    limits = [limit for limit in definition.limits if given.get(limit.name, limit) is not None]
    arguments: Mapping[str, Any] = {}
    if any(limit.names and limit.name not in given for limit in limits):
        arguments = definition.signature.arguments(input, lenient=lenient)
    own = {"tenant": tenant, "queue": queue, "type": definition.type}
    values = (given[limit.name] if limit.name in given else _key_value(limit, own, arguments) for limit in limits)
    return tuple(
        _scoped_key(limit.name, value, scope=limit.scope, tenant=tenant)
        for limit, value in zip(limits, values, strict=True)
    )


def bucket_of(name: object, key: object | None, *, scope: str, tenant: str) -> str:
    """The key that a handler names: `ctx.acquire("domain", key="example.org")` is the same key as that of jobs."""
    value = None if key is None else _to_text(key, f"the key of {name!r}", "leave it out if there is one for all")
    return _scoped_key(_check_name(name), value, scope=scope, tenant=tenant)


def parse_limit_values(given: object, limits: Sequence[Limit]) -> dict[str, str | None]:
    """The values given at an enqueue, by the rules' names, as texts. None: the job does not count against that rule."""
    if not isinstance(given, Mapping):
        raise InvalidOption(f'limits={given!r} is not a dict; write limits={{"domain": "example.org"}}')
    known = {limit.name: limit for limit in limits}
    for name in given:
        if name not in known:
            hint = suggest(str(name), known) if known else "; it has none: declare them with @app.job(limits=[…])"
            raise InvalidOption(f"limits: this job type has no limit {name!r}{hint}")
    return {
        name: None if value is None else _to_text(value, f"limits: the value of {name!r}", "give a text, or None")
        for name, value in given.items()
    }


def _scoped_key(name: str, value: str | None, *, scope: str, tenant: str) -> str:
    if scope == "tenant":
        value = escape_tenant(tenant) if value is None else f"{escape_tenant(tenant)}/{value}"
    return shorten_key(key_of(name, value), LONGEST_KEY)


def _key_value(limit: Limit, own: Mapping[str, str], arguments: Mapping[str, Any]) -> str | None:
    """The value of a job's key; None: all jobs share one key."""
    if limit.key is None:
        return own.get(limit.name)
    otherwise = f'give it at the enqueue: .options(limits={{"{limit.name}": …}}), with None if the job does not count'
    if not callable(limit.key):
        return _to_text(arguments[limit.key], f"limit {limit.name!r}: argument {limit.key!r}", otherwise)
    what = f"limit {limit.name!r}: key={name_of(limit.key)}"
    try:
        value = limit.key(**{name: arguments[name] for name in limit.names})
    except Exception as error:  # it is the user's code and may raise anything
        raise EnqueueError(f"{what} raised {type(error).__name__}: {error}; fix it, or {otherwise}") from error
    return _to_text(value, f"what {what} returned", f"return a text, or {otherwise}")


def _to_text(value: object, what: str, otherwise: str) -> str:
    if isinstance(value, Enum):  # as in the stored input, so that Kind.PDF and "pdf" are one key
        value = value.value
    if not isinstance(value, (str, int, float, UUID)):
        kind = "None" if value is None else type(value).__name__
        raise InvalidOption(f"{what} is {kind}, and a key is made of a text, a number or a UUID; {otherwise}")
    text = str(value)
    if not text:
        raise InvalidOption(f"{what} is empty, so unrelated jobs would share one key; {otherwise}")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidOption(f"{what} has a NUL or half a surrogate pair in it: {text[:50]!a}; {otherwise}")
    return text


# Checks of a declaration


def _check_name(name: object) -> str:
    problem = name_problem(name, longest=LONGEST_NAME)
    if problem is None and APART in str(name):
        problem = f"has a {APART!r} in it, which separates a name from its value: {name!r}; write '-' instead"
    if problem is not None:
        raise ConfigError(f"the name of a limit {problem}")
    return str(name)


def _suggest_whole_count(name: str, count: object, length: float) -> str:
    """Rewrite a fraction in whole numbers: 1.5 per second are 3 every 2 s."""
    if isinstance(count, float) and LEAST_COUNT <= count <= MOST:
        whole = Fraction(count).limit_denominator(MOST_PARTS)
        return f'write rate({name!r}, {whole.numerator}, every="{spell(length * whole.denominator)}")'
    return "for less than one per period, make the period longer"


def _check_count(value: object, what: str, otherwise: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ConfigError(f"{what} is a whole number from 1 to {MOST}, not {value!r}; {otherwise}")


def _check_key(what: str, key: object) -> Any:
    if key is None or isinstance(key, str) or callable(key):
        return key
    raise ConfigError(f"{what}: key={key!r}; give the name of an argument, or a function of arguments")


def _check_scope(what: str, scope: object) -> str:
    if scope not in SCOPES:
        raise ConfigError(f"{what}: scope={scope!r}{suggest(str(scope), dict.fromkeys(SCOPES))}")
    return str(scope)
