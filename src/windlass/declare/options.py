"""The options of an enqueue, checked in one place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from windlass.clock import Duration, seconds
from windlass.declare.registry import PRIORITIES, Definition, JobOptions
from windlass.errors import ConfigError, InvalidOption, RegistrationError
from windlass.names import LONGEST_NAME, name_problem
from windlass.payload.profile import LARGEST
from windlass.payload.signature import Signature
from windlass.policy.limit import parse_limit_values
from windlass.policy.unique import Unique, Uniqueness, parse_unique
from windlass.words import OPTIONS, suggest_option


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one enqueue; with None the job's type decides."""

    queue: str | None = None
    priority: int | None = None
    tenant: str | None = None
    max_attempts: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    key: str | None = None
    unique: Uniqueness | bool | None = None  # False: not unique, even if its type is
    idempotency_key: str | None = None
    limits: dict[str, str | None] | None = None  # values of keys by the rules' names; None: the job does not count
    conn: Any = None

    def merge(self, given: Mapping[str, Any], definition: Definition) -> Options:
        """These options, overridden by others, for a job of this type."""
        values = {**{name: getattr(self, name) for name in self.__struct_fields__}, **given}
        if given.get("unique") not in (None, False):
            values["unique"] = _uniqueness(given["unique"], definition.signature)
        if given.get("limits") is not None:
            values["limits"] = {**(self.limits or {}), **parse_limit_values(given["limits"], definition.limits)}
        return check_options(values)


NONE = Options()


def check_declaration(fn: object, options: Mapping[str, Any]) -> None:
    """Refuse what `@app.job(…)` does not take; `fn` is None when it was given options."""
    if isinstance(fn, str):
        raise RegistrationError(f"@app.job was given {fn!r} without a name; write: queue={fn!r} or type={fn!r}")
    known = JobOptions.__annotations__
    for name in options:
        if name not in known:
            hint = suggest_option(name, known, OPTIONS, "an enqueue has it: add.options({}).enqueue(…)")
            raise RegistrationError(f"@app.job has no option {name!r}{hint}")


def check_options(given: Mapping[str, Any]) -> Options:
    """Options from a caller's arguments; every mistake has its own message."""
    known = dict.fromkeys(Options.__struct_fields__)
    for name in given:
        if name not in known:
            hint = suggest_option(name, known, JobOptions.__annotations__, "a job type has it: @app.job({})")
            raise InvalidOption(f"unknown option {name!r}{hint}")
    values = {name: value for name, value in given.items() if value is not None}
    for name in ("queue", "tenant"):
        _check_name(name, values)
    for name in ("key", "idempotency_key"):
        _check_name(name, values, longest=LARGEST)  # a long key is stored as its hash
    if "delay" in values and "run_at" in values:
        raise InvalidOption("delay and run_at both set the time; give one of them")
    if "delay" in values:
        values["delay"] = _delay(values["delay"])
    if "run_at" in values:
        _check_time(values["run_at"])
    _check_number("priority", values, PRIORITIES)
    _check_number("max_attempts", values, range(1, 2**31))
    return Options(**values)


def _check_name(name: str, values: Mapping[str, Any], *, longest: int = LONGEST_NAME) -> None:
    problem = name_problem(values[name], longest=longest) if name in values else None
    if problem is not None:
        raise InvalidOption(f"{name} {problem}")


def _uniqueness(given: Unique, signature: Signature) -> Uniqueness:
    try:
        return parse_unique(given, signature)
    except ConfigError as error:
        raise InvalidOption(str(error)) from None


def _delay(value: Duration) -> float:
    try:
        return seconds(value, what="delay")
    except ConfigError as error:
        raise InvalidOption(str(error)) from None


def _check_time(value: object) -> None:
    if not isinstance(value, datetime):
        raise InvalidOption(f"run_at={value!r} is not a datetime; for a span from now, use delay='10m'")
    if value.tzinfo is None:
        raise InvalidOption(f"run_at={value!r} has no time zone; write datetime.now(UTC) or add tzinfo=UTC")
    if not 1970 <= value.year < 3000:
        raise InvalidOption(f"run_at={value!r} is not in the years 1970 to 2999")


def _check_number(name: str, values: Mapping[str, Any], allowed: range) -> None:
    if name not in values:
        return
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise InvalidOption(f"{name}={value!r} is not a whole number from {allowed.start} to {allowed.stop - 1}")
