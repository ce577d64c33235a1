"""Keys that refuse a second job: what a key is made of, in which states of its job it refuses, and for how long.

An enqueue makes a `Key` here, and the store compares it in the transaction that writes the job. A `unique=` key belongs
to a job type and is made of arguments. An idempotency key belongs to a producer and to one input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec

from windlass.clock import Duration, seconds
from windlass.config import suggest
from windlass.errors import ConfigError, IdempotencyConflict, InvalidOption
from windlass.model.flow import redirected
from windlass.model.job import Key, NewJob
from windlass.model.state import State
from windlass.names import name_problem
from windlass.payload.sanitise import dump_unknown
from windlass.payload.signature import Signature
from windlass.policy.arguments import name_of, read_parameters, select_arguments

LONGEST_KEY = 255  # characters; a longer text is cut to this length and ends with its hash
HASH_LENGTH = 75  # characters of a shortened key that are kept free for `… sha256:` and the hash
REFUSING_STATES = (State.QUEUED, State.RUNNING, State.FAILED, State.WAITING, State.SUCCEEDED)
"""A key refuses in these states unless its policy names others: all but `dead` and `cancelled`."""
UNFINISHED_STATES = (State.QUEUED, State.RUNNING, State.FAILED, State.WAITING)
UNFINISHED = "unfinished"
"""The one word for these states: a job that succeeded refuses no other job."""
SCOPES = {"tenant": False, "global": True}  # whether all tenants share a key
Scope = Literal["tenant", "global"]
"""Whether each tenant has keys of its own, or all tenants share them."""

By = bool | str | Sequence[str] | Callable[..., object]
"""True: all arguments. One name, or several: those arguments. A function: what it returns for its arguments."""

encoder = msgspec.json.Encoder(enc_hook=dump_unknown, order="deterministic")


class Uniqueness(msgspec.Struct, frozen=True, kw_only=True):
    """A policy: which jobs of a type exclude each other."""

    by: By = True
    states: tuple[State, ...] = REFUSING_STATES
    window: float | None = None  # seconds
    shared: bool = False  # one key for all tenants
    forever: bool = False  # also after the job's history is pruned
    names: tuple[str, ...] = ()  # of the arguments that make the key; `parse_unique` sets them


Unique = By | Uniqueness
"""The values that `unique=` takes."""


def unique(
    by: By = True,
    *,
    states: Literal["unfinished"] | Iterable[State | str] | None = None,
    window: Duration | None = None,
    scope: Scope = "tenant",
    forever: bool = False,
) -> Uniqueness:
    """Refuse a second job with the same key while the first is unfinished, and also after the first has succeeded.

    `@app.job(unique=unique("url"))` refuses until the first job is dead or cancelled, or until its history is deleted
    (setting `history`). `unique("url", states="unfinished")` refuses only while the first job is unfinished: queued,
    running, failed with an attempt to come, or waiting. `states` may also list states: `["queued"]`.

    The key refuses at most for `window` from the enqueue, and inside one tenant (`scope="global"`: across all tenants).
    With `forever` the key stays after the job's history has been deleted.
    """
    if scope not in SCOPES:
        raise ConfigError(f"unique(scope=…): there is no scope {scope!r}{suggest(str(scope), SCOPES)}")
    length = None if window is None else seconds(window, what="unique(window=…)")
    if length == 0:
        raise ConfigError(f"unique(window={window!r}) refuses nothing; leave it out for a key that does not expire")
    policy = Uniqueness(by=by, states=_parse_states(states), window=length, shared=SCOPES[scope], forever=bool(forever))
    return _check_forever(policy) if forever else policy


def parse_unique(given: Unique, signature: Signature, *, what: str = "unique", forever: bool = False) -> Uniqueness:
    """The policy of a declaration or an enqueue, with the handler's parameters that make its key."""
    policy = given if isinstance(given, Uniqueness) else Uniqueness(by=given)
    if forever:
        policy = _check_forever(msgspec.structs.replace(policy, forever=True))
    return msgspec.structs.replace(policy, names=_argument_names(policy.by, signature, what))


# The key of one job


def text_of(policy: Uniqueness, signature: Signature, input: str) -> str:
    """The text of an input's key. It is made of the arguments as the handler will see them, defaults included."""
    values = signature.arguments(input)
    chosen = {name: values[name] for name in policy.names}
    if callable(policy.by):
        return _call_key_function(policy.by, chosen)
    given = msgspec.json.decode(input).keys()
    for name in policy.names:
        if name not in given and not _is_json(chosen[name]):
            del chosen[name]  # a default that JSON cannot hold equals no value that a caller could pass
    if len(policy.names) == 1 and policy.by is not True and chosen:
        return _to_text(chosen.popitem()[1])
    return encoder.encode(chosen).decode()


def unique_key(policy: Uniqueness, text: str, *, tenant: str, type: str) -> Key:
    """The key as the store keeps it."""
    return Key(
        scope=f"unique/{'*' if policy.shared else escape_tenant(tenant)}/{type}",
        key=text,
        states=tuple(state.value for state in policy.states),
        window=policy.window,
        forever=policy.forever,
    )


def idempotency_key(text: str, *, tenant: str, type: str, input: str, window: float) -> Key:
    """A producer's key. It refuses in every state of its job, and holds a fingerprint of the type and the input."""
    document = encoder.encode([type, msgspec.json.decode(input)])
    fingerprint = hashlib.sha256(document).hexdigest()
    return Key(scope=f"idempotency/{escape_tenant(tenant)}", key=text, window=window, fingerprint=fingerprint)


def call_key(text: str, place: int, *, tenant: str, fingerprint: str, window: float) -> Key:
    """The key of the job at this place of a call that makes several jobs. It has a scope apart from keys of one job."""
    key = shorten_key(f"{text}#{place}")
    return Key(scope=f"idempotency/{escape_tenant(tenant)}/call", key=key, window=window, fingerprint=fingerprint)


def call_fingerprint(calls: Sequence[tuple[str, Any, Mapping[str, Any]]]) -> str:
    """The fingerprint of all types, inputs and options of a call, in their order."""
    try:
        return hashlib.sha256(encoder.encode(calls)).hexdigest()
    except Exception as error:  # hooks are the user's code and may raise anything
        raise InvalidOption(f"with an idempotency key all options must be JSON: {error}") from error


def shorten_key(text: str, longest: int = LONGEST_KEY) -> str:
    """A key that fits: a longer text is replaced by its beginning and the hash of the whole text."""
    if len(text) <= longest:
        return text
    return f"{text[: longest - HASH_LENGTH]}… sha256:{hashlib.sha256(text.encode()).hexdigest()}"


# Many jobs at once


def merge_repeated(jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], dict[UUID, UUID]]:
    """Drop the jobs of one enqueue that repeat the key of an earlier one: a statement cannot take one key twice.

    Returns the remaining jobs, and by the id of each dropped job the id of the job that has its key. Raises
    IdempotencyConflict when two inputs have the same idempotency key.
    """
    repeated: dict[UUID, UUID] = {}
    if all(job.unique is None and job.idempotency is None for job in jobs):
        return jobs, repeated
    holders: dict[tuple[str, str], tuple[UUID, str | None]] = {}
    for job in jobs:
        keys = [key for key in (job.idempotency, job.unique) if key is not None]
        for key in keys:
            holder, fingerprint = holders.get((key.scope, key.key), (None, None))
            if holder is not None and fingerprint != key.fingerprint:
                raise IdempotencyConflict(
                    f"two of these calls have the idempotency key {key.key!r}, with another type or input; nothing was "
                    "enqueued; use a new key for a new request"
                )
            if holder is not None and job.id not in repeated:
                repeated[job.id] = holder
        for key in keys:
            holders.setdefault((key.scope, key.key), (repeated.get(job.id, job.id), key.fingerprint))
    if not repeated:
        return jobs, repeated
    return [_redirect(job, repeated) for job in jobs if job.id not in repeated], repeated


def _redirect(job: NewJob, repeated: Mapping[UUID, UUID]) -> NewJob:
    """Let a node of a graph that depends on a dropped job depend on the job that has its key."""
    links = tuple((name, repeated.get(target, target)) for name, target in job.links)
    wait = None if job.wait is None else redirected(job.wait, repeated)
    return msgspec.structs.replace(job, links=links, wait=wait)


# Checks of a policy


def _parse_states(given: Iterable[State | str] | None) -> tuple[State, ...]:
    if given is None:
        return REFUSING_STATES
    if given == UNFINISHED:
        return UNFINISHED_STATES
    known = dict.fromkeys(state.value for state in State)
    wanted = [given] if isinstance(given, str) else list(given)
    for state in wanted:
        if state == UNFINISHED:
            raise ConfigError(f"unique(states={wanted!r}): {UNFINISHED!r} stands alone; write: states={UNFINISHED!r}")
        if state not in known:
            words = {**known, UNFINISHED: None} if isinstance(given, str) else known
            raise ConfigError(f"unique(states=…): there is no state {state!r}{suggest(str(state), words)}")
    if State.QUEUED not in wanted:
        raise ConfigError(
            "unique(states=…) must name 'queued': every job begins in that state, and takes its key there"
        )
    return tuple(state for state in State if state in wanted)


def _check_forever(policy: Uniqueness) -> Uniqueness:
    """Return the policy if it can last for ever."""
    if policy.window is not None:
        raise ConfigError("a unique key with a window is not for ever; leave one of them out")
    if State.SUCCEEDED not in policy.states:
        raise ConfigError("a unique key is kept for ever by a job that succeeded; name 'succeeded' among its states")
    return policy


def _argument_names(by: object, signature: Signature, what: str) -> tuple[str, ...]:
    """The names of the arguments that make the key."""
    if by is True:
        return signature.names
    if callable(by):
        return read_parameters(by, signature, what)
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{what}={by!r}; give True, names of arguments, a function of them, or unique(…)")
    return select_arguments(names, signature, what)


# Texts


def _call_key_function(fn: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    value = fn(**arguments)
    if value is None:
        raise InvalidOption(f"unique={name_of(fn)} returned None; return a text, or another value that JSON can hold")
    try:
        return _to_text(value)
    except Exception as error:  # hooks are the user's code and may raise anything
        raise InvalidOption(
            f"unique={name_of(fn)} returned {type(value).__name__}, which is not JSON ({error}); return a text"
        ) from error


def _is_json(default: object) -> bool:
    try:
        encoder.encode(default)
    except Exception:  # hooks are the user's code and may raise anything
        return False
    return True


def _to_text(value: object) -> str:
    """A text, a date or a UUID as it is, if it could be a name and begins with no quote; anything else as JSON."""
    document = encoder.encode(value)
    if document.startswith(b'"'):
        text: str = msgspec.json.decode(document)
        if not text.startswith('"') and name_problem(text, longest=len(text)) is None:
            return text
    return document.decode()


def escape_tenant(tenant: str) -> str:
    """Escape a tenant's name, so that it cannot be mistaken for another scope."""
    return tenant.replace("%", "%25").replace("/", "%2F").replace("*", "%2A")
