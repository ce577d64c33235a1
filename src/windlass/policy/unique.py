"""Keys that refuse a second job: what they are made of, in which states of their job they refuse, and how long.

An enqueue makes a `Key` here; the store compares it in the transaction that writes the job. `unique=` belongs to a type
and is made of arguments, an idempotency key belongs to a producer and to one input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
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

LONGEST_KEY = 255  # characters; of a longer text this much is kept, with its hash
HASH_LENGTH = 75  # characters by which the end of a longer text is told
REFUSING_STATES = (State.QUEUED, State.RUNNING, State.FAILED, State.WAITING, State.SUCCEEDED)
"""Where a key refuses unless its policy says otherwise: everywhere but in `dead` and `cancelled`."""
SCOPES = ("tenant", "global")

By = bool | str | Sequence[str] | Callable[..., object]
"""True: all arguments. A name, or several: those. A function of arguments, by their names: what it returns."""

encoder = msgspec.json.Encoder(enc_hook=dump_unknown, order="deterministic")


class Uniqueness(msgspec.Struct, frozen=True, kw_only=True):
    """A policy: which jobs of a type exclude one another."""

    by: By = True
    states: tuple[State, ...] = REFUSING_STATES
    window: float | None = None  # seconds
    shared: bool = False  # by all tenants
    forever: bool = False  # beyond the job's history
    names: tuple[str, ...] = ()  # of the arguments that make the key; known when a job type has been found for it


Unique = By | Uniqueness
"""What `unique=` takes."""


def unique(
    by: By = True,
    *,
    states: Iterable[State | str] | None = None,
    window: Duration | None = None,
    scope: str = "tenant",
    forever: bool = False,
) -> Uniqueness:
    """Let no second job in: `@app.job(unique=unique(by="user_id", window="1h"))`.

    The key refuses while its job is in one of `states` (all but dead and cancelled), at most for `window` from the
    enqueue, inside one tenant (`scope="global"`: across all). `forever` keeps it when the job's history has passed.
    """
    if scope not in SCOPES:
        raise ConfigError(f"unique(scope={scope!r}): there are: {', '.join(SCOPES)}")
    length = None if window is None else seconds(window, what="unique(window=…)")
    if length == 0:
        raise ConfigError(f"unique(window={window!r}) refuses nothing; leave it out for a key without an end")
    policy = Uniqueness(
        by=by, states=_parse_states(states), window=length, shared=scope == "global", forever=bool(forever)
    )
    return _check_forever(policy) if forever else policy


def parse_unique(given: Unique, signature: Signature, *, what: str = "unique", forever: bool = False) -> Uniqueness:
    """The policy that a declaration or an enqueue means, fitted to the handler's parameters."""
    policy = given if isinstance(given, Uniqueness) else Uniqueness(by=given)
    if forever:
        policy = _check_forever(msgspec.structs.replace(policy, forever=True))
    return msgspec.structs.replace(policy, names=_argument_names(policy.by, signature, what))


# The key of one job


def text_of(policy: Uniqueness, signature: Signature, input: str) -> str:
    """The text that an input's key is made of: as the handler will see the arguments, its defaults included."""
    values = signature.arguments(input)
    chosen = {name: values[name] for name in policy.names}
    if callable(policy.by):
        return _call_key_function(policy.by, chosen)
    given = msgspec.json.decode(input).keys()
    for name in policy.names:
        if name not in given and not _is_json(chosen[name]):
            del chosen[name]  # a default that cannot travel as JSON equals nothing that could be given
    if len(policy.names) == 1 and policy.by is not True and chosen:
        return _to_text(chosen.popitem()[1])
    return encoder.encode(chosen).decode()


def unique_key(policy: Uniqueness, text: str, *, tenant: str, type: str) -> Key:
    """The key that the store keeps."""
    return Key(
        scope=f"unique/{'*' if policy.shared else escape_tenant(tenant)}/{type}",
        key=text,
        states=tuple(state.value for state in policy.states),
        window=policy.window,
        forever=policy.forever,
    )


def idempotency_key(text: str, *, tenant: str, type: str, input: str, window: float) -> Key:
    """A producer's key: it refuses whatever became of its job, and remembers what it was used for."""
    document = encoder.encode([type, msgspec.json.decode(input)])
    fingerprint = hashlib.sha256(document).hexdigest()
    return Key(scope=f"idempotency/{escape_tenant(tenant)}", key=text, window=window, fingerprint=fingerprint)


def shorten_key(text: str, longest: int = LONGEST_KEY) -> str:
    """A key that fits: a long text is told by its beginning and by the hash of all of it."""
    if len(text) <= longest:
        return text
    return f"{text[: longest - HASH_LENGTH]}… sha256:{hashlib.sha256(text.encode()).hexdigest()}"


# Many jobs at once


def merge_repeated(jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], dict[UUID, UUID]]:
    """The jobs of one enqueue without those whose key an earlier one of them has, and whose it is, by their ids.

    A statement cannot take one key twice. Raises IdempotencyConflict when an idempotency key stands for two inputs.
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
    """A node of a graph that depends on a repeated one depends on the one that is there."""
    links = tuple((name, repeated.get(target, target)) for name, target in job.links)
    wait = None if job.wait is None else redirected(job.wait, repeated)
    return msgspec.structs.replace(job, links=links, wait=wait)


# What a policy may say


def _parse_states(given: Iterable[State | str] | None) -> tuple[State, ...]:
    if given is None:
        return REFUSING_STATES
    known = {state.value: state for state in State}
    wanted = [given] if isinstance(given, str) else list(given)
    for state in wanted:
        if state not in known:
            raise ConfigError(f"unique(states=…): there is no state {state!r}{suggest(str(state), known)}")
    if State.QUEUED not in wanted:
        raise ConfigError("unique(states=…) must name 'queued': every job begins there, and takes its key with it")
    return tuple(state for state in State if state in wanted)


def _check_forever(policy: Uniqueness) -> Uniqueness:
    """A policy for ever, if it can be one."""
    if policy.window is not None:
        raise ConfigError("a unique key with a window is not for ever; leave one of them out")
    if State.SUCCEEDED not in policy.states:
        raise ConfigError("a unique key is kept for ever by a job that succeeded; name 'succeeded' among its states")
    return policy


def _argument_names(by: object, signature: Signature, what: str) -> tuple[str, ...]:
    """The arguments that the key is made of."""
    if by is True:
        return signature.names
    if callable(by):
        return read_parameters(by, signature, what)
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else ()
    if not names:
        raise ConfigError(f"{what}={by!r}; give True, names of arguments, a function of them, or unique(…)")
    return select_arguments(names, signature, what)


# Texts


def _call_key_function(fn: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    value = fn(**arguments)
    if value is None:
        raise InvalidOption(f"unique={name_of(fn)} returned None; return a text, or another value that JSON can say")
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
    """A text (a date's too, and a UUID's) as it is, where a person could have written it; anything else as JSON."""
    document = encoder.encode(value)
    if document.startswith(b'"'):
        text: str = msgspec.json.decode(document)
        if not text.startswith('"') and name_problem(text, longest=len(text)) is None:
            return text
    return document.decode()


def escape_tenant(tenant: str) -> str:
    """So that no tenant's name looks like another scope."""
    return tenant.replace("%", "%25").replace("/", "%2F").replace("*", "%2A")
