"""Settings: frozen, checked when built, each with a name in the environment and in a file.

Explicit argument > flag > `WINDLASS_*` > `windlass.toml` > `[tool.windlass]` in pyproject.toml > the pace's preset >
default. One function, `Settings.load`, reads all of them when an app is made; nothing is read at import time.
`origins` records the source of each value, for `windlass config`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypedDict

from windlass.actor import current_actor
from windlass.address import trace_link
from windlass.clock import Duration, seconds, spell
from windlass.config_readers import (
    PREFIX,
    SECRET,
    broker_url,
    one_of,
    read_environment,
    read_files,
    redis_url,
    store_url,
    switch,
    text,
    whole,
)
from windlass.errors import ConfigError
from windlass.names import listed_names, name_problem

DEFAULT_URL = "sqlite:///windlass.db"


class Pace(StrEnum):
    """How eagerly a worker claims jobs and assigns them to processors: three presets of settings."""

    EAGER = "eager"  # as soon as a job is due
    STEADY = "steady"  # on a timetable: a scan each minute, three assignments per phase each five seconds
    POLITE = "polite"  # little at a time: ten jobs, ten processors, two attempts


class Order(StrEnum):
    """Which of several due jobs is claimed first: the one that is due longest, or the one that was created first."""

    RUN_AT = "run_at"
    CREATED_AT = "created_at"


def duration(value: object) -> float:
    return seconds(value, what="duration")  # type: ignore[arg-type]


def setting(default: Any, read: Callable[[object], Any], about: str) -> Any:
    """A field with a function that parses its text and with a description."""
    return field(default=default, repr=read not in SECRET, metadata={"read": read, "about": about})


class SettingsArguments(TypedDict, total=False):
    """The settings as a program gives them to `Windlass(…)`; `Settings` describes each of them."""

    direct_url: str | None
    pooler: Literal["transaction"] | None
    connections: int
    pace: Literal["eager", "steady", "polite"] | Pace
    lease: Duration
    beat: Duration
    margin: Duration
    sweep: Duration
    health: Duration
    poll: Duration
    grace: Duration
    history: Duration
    audit: Duration
    read_timeout: Duration
    actor: str | None
    idempotency_window: Duration
    cancel_grace: Duration
    concurrency: int
    max_attempts: int
    max_crashes: int
    crash_counts: bool
    timeout: Duration | None
    memory: str | int | None
    discovery_batch: int | None
    order: Literal["run_at", "created_at"] | Order
    untouched: Duration
    assign_every: Duration
    assign_most: int | None
    pool_size: int | None
    local_queue: int | None
    ageing: int
    redact: Iterable[str]
    trace_url: str | None
    version: str | None
    broker: str | None
    delivery: Literal["outbox", "direct"]
    fallback: Duration
    relay: bool
    undelivered: Duration
    undelivered_every: Duration
    undelivered_action: Literal["publish", "fail"]
    rates: str | None
    metrics_port: int | None
    metrics_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, in seconds where it is a time."""

    url: str = setting(DEFAULT_URL, store_url, "the store: postgresql://… or sqlite:///file.db")
    direct_url: str | None = setting(None, store_url, "the database behind a pooler, for LISTEN and the beat")
    pooler: str | None = setting(None, text, "'transaction' when a transaction pooler is in front")
    connections: int = setting(4, whole, "database connections of one process at most")
    pace: Pace = setting(Pace.EAGER, lambda value: _pace(value), "eager, steady or polite")

    lease: float = setting(30.0, duration, "how long a silent worker keeps its jobs")
    beat: float = setting(10.0, duration, "how often a worker renews its leases; a third of a shorter lease")
    margin: float = setting(
        5.0,
        duration,
        "a worker that cannot renew its lease stops its handlers this long before the lease expires; "
        "a sixth of a shorter lease",
    )
    sweep: float = setting(5.0, duration, "how often a worker sweeps for dead workers")
    health: float = setting(5.0, duration, "how often processors are checked")
    poll: float = setting(1.0, duration, "how often an idle worker polls for jobs without a wake-up")
    grace: float = setting(25.0, duration, "how long a stopping worker waits for its handlers")
    history: float = setting(7 * 86_400.0, duration, "how long finished jobs are kept")
    audit: float = setting(90 * 86_400.0, duration, "how long the audit is kept")
    read_timeout: float = setting(5.0, duration, "how long a list of jobs, queues, tenants or the audit may take")
    actor: str | None = setting(
        None, text, "the actor that the audit names for operations of this process; none: user@host"
    )
    idempotency_window: float = setting(86_400.0, duration, "how long a repeated idempotency key returns the first job")
    cancel_grace: float = setting(5.0, duration, "how long a thread or process may take to stop after a cancel")

    concurrency: int = setting(20, whole, "processors of one worker")
    max_attempts: int = setting(4, whole, "attempts of a job, unless its type sets its own")
    max_crashes: int = setting(3, whole, "worker deaths after which a job is dead")
    crash_counts: bool = setting(False, switch, "whether a crash uses up the attempt that it interrupted")
    timeout: float | None = setting(None, duration, "time limit of an attempt, unless its type sets its own")
    memory: int | None = setting(None, lambda value: memory_size(value), "memory limit of a child process")

    discovery_batch: int | None = setting(None, whole, "jobs per phase and claim at most")
    order: Order = setting(Order.RUN_AT, lambda value: Order(str(value)), "claimed first: run_at or created_at")
    untouched: float = setting(0.0, duration, "a job whose row changed within this time is not claimed")
    assign_every: float = setting(0.0, duration, "pause between assignments; 0: at once")
    assign_most: int | None = setting(None, whole, "assignments per phase and round at most")
    pool_size: int | None = setting(None, whole, "processors per phase, unless the phase sets its own")
    local_queue: int | None = setting(None, whole, "claimed jobs that may wait in memory, per phase")
    ageing: int = setting(
        10, whole, "one claimed job in this many is the oldest due one, whatever its priority; 0: none"
    )
    redact: tuple[str, ...] = setting((), listed_names, "further names of secrets in jobs, which the HTTP API hides")
    trace_url: str | None = setting(None, trace_link, "where the dashboard shows a trace: https://…/{trace_id}")
    version: str | None = setting(
        None, text, "the version of your program, such as a commit; its workers announce it, and lists show it"
    )

    broker: str | None = setting(None, broker_url, "the broker that carries deliveries: amqp://… or redis://…")
    delivery: str = setting(
        "outbox", one_of("outbox", "direct"), "what publishes a job: outbox (a relay) or direct (its enqueue)"
    )
    fallback: float = setting(
        15.0, duration, "with a broker, a worker polls this often for jobs that were due for this long"
    )
    relay: bool = setting(True, switch, "whether workers publish the outbox; off where another process does")
    undelivered: float = setting(3_600.0, duration, "a job that was due and unclaimed for this long is undelivered")
    undelivered_every: float = setting(900.0, duration, "how often the leader looks for undelivered jobs")
    undelivered_action: str = setting(
        "publish", one_of("publish", "fail"), "what becomes of undelivered jobs: publish (again) or fail (dead)"
    )

    rates: str | None = setting(None, redis_url, "where the buckets of rates are: none (the store) or redis://…")

    metrics_port: int | None = setting(
        None, whole, "the port of a worker's metrics, /healthz and /readyz; 0: a free one"
    )
    metrics_host: str = setting("127.0.0.1", text, "the address of that port; 0.0.0.0: other machines reach it")

    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where each value that is no default comes from: `app.settings.origins["lease"]` is "environment"."""

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
        flags: Mapping[str, Any] | None = None,
        **explicit: Any,
    ) -> Settings:
        """Settings from every source, the nearest first; each value is parsed once and its source is recorded."""
        sources: list[tuple[str, Mapping[str, Any]]] = [
            ("argument", explicit),
            ("flag", flags or {}),
            ("environment", read_environment(os.environ if environ is None else environ, by_variable())),
            *read_files(folder or Path.cwd()),
        ]
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for source, given in sources:
            for name, value in given.items():
                if value is not None and name not in values:
                    values[name] = _read(name, value, source)
                    origins[name] = source
        pace = values.get("pace", Pace.EAGER)
        for name, value in PRESETS[pace].items():
            if name not in values:
                values[name] = value
                origins[name] = f"pace {pace}"
        _follow(values, origins)
        return cls(**values, origins=origins)

    def with_(self, **changes: Any) -> Settings:
        """A copy with some settings given as arguments."""
        if not {"lease", "beat"} & changes.keys():  # nothing moves that others follow
            return replace(self, **changes, origins={**self.origins, **dict.fromkeys(changes, "argument")})
        stays = {name: origin for name, origin in self.origins.items() if not origin.startswith("follows")}
        usual = names()
        values: dict[str, Any] = {
            name: getattr(self, name) if name in stays or name not in self.origins else usual[name].default
            for name in ("lease", "beat", "margin")
        } | changes
        origins = {**stays, **dict.fromkeys(changes, "argument")}
        _follow(values, origins)
        return replace(self, **values, origins=origins)

    @property
    def acting(self) -> str:
        """The actor that the audit names: that of `acting_as`, else the setting, else user@host."""
        return current_actor(self.actor)


def _follow(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Fit beat and margin to the lease, and the lease to the beat. A value that was given stays, and is checked."""

    def given(name: str) -> bool:
        return name in origins and not origins[name].startswith(("pace", "follows"))

    lease, beat, margin = values.get("lease", 30.0), values.get("beat", 10.0), values.get("margin", 5.0)
    if given("beat") and not given("lease") and lease < 3 * beat:
        lease = values["lease"] = 3 * beat
        origins["lease"] = "follows beat"
    if not given("beat") and beat > lease / 3:
        values["beat"], origins["beat"] = lease / 3, "follows lease"
    if not given("margin") and margin > lease / 6:
        values["margin"], origins["margin"] = lease / 6, "follows lease"


PRESETS: dict[Pace, dict[str, Any]] = {
    Pace.EAGER: {},
    Pace.STEADY: {
        "poll": 60.0,
        "discovery_batch": 10,
        "order": Order.CREATED_AT,
        "untouched": 30.0,
        "assign_every": 5.0,
        "assign_most": 3,
        "concurrency": 100,
        "pool_size": 10,
        "local_queue": 1000,
        "health": 30.0,
        "sweep": 300.0,
        "max_attempts": 4,
        "timeout": 300.0,
        "ageing": 0,
    },
    Pace.POLITE: {
        "discovery_batch": 10,
        "concurrency": 10,
        "assign_most": 10,
        "local_queue": 10,
        "health": 30.0,
        "sweep": 60.0,
        "lease": 600.0,
        "beat": 60.0,
        "max_attempts": 2,
    },
}


def memory_size(value: object) -> int:
    """Bytes from `512M`, `2G` or a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raw = str(value).strip().upper().removesuffix("B").removesuffix("I")
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(raw[-1:], 1)
    try:
        return int(float(raw.rstrip("KMG")) * factor)
    except ValueError:
        raise ConfigError(f"{value!r} is not a size of memory; write it like '512M' or '2G'") from None


def suggest(name: str, known: Mapping[str, object]) -> str:
    """`; did you mean 'x'?` or a list of the known names."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(sorted(known))}"


def _pace(value: object) -> Pace:
    try:
        return Pace(str(value))
    except ValueError:
        raise ConfigError(f"{value!r} is no pace; there are: {', '.join(Pace)}") from None


def names() -> dict[str, Field[Any]]:
    """Every setting by its name."""
    return {item.name: item for item in fields(Settings) if "read" in item.metadata}


def variable(name: str) -> str:
    """A setting's name in the environment."""
    return PREFIX + name.upper()


def by_variable() -> dict[str, str]:
    """Every setting's name by its name in the environment."""
    return {variable(name): name for name in names()}


def _read(name: str, value: object, source: str) -> Any:
    known = names()
    if name not in known:
        raise ConfigError(f"unknown setting {name!r} ({source}){suggest(name, known)}")
    try:
        return known[name].metadata["read"](value)
    except (ConfigError, ValueError) as error:
        shown = variable(name) if source == "environment" else name
        given = "" if known[name].metadata["read"] in SECRET else f"={value!r}"
        raise ConfigError(f"{shown}{given} ({source}): {error}") from None


POSITIVE_TIMES = (
    *("lease", "beat", "sweep", "health", "poll", "history", "audit", "read_timeout", "idempotency_window"),
    *("fallback", "undelivered", "undelivered_every"),
)


def _check(settings: Settings) -> None:
    def from_(name: str) -> str:
        origin = settings.origins.get(name)
        return f", {origin}" if origin else ""

    if settings.lease < 3 * settings.beat:
        raise ConfigError(
            f"lease ({spell(settings.lease)}{from_('lease')}) must be at least three beats ({spell(settings.beat)} "
            f"each{from_('beat')}), or one late beat loses every job; set beat (WINDLASS_BEAT) to "
            f"{spell(settings.lease / 3)} or less"
        )
    if settings.margin >= settings.lease:
        raise ConfigError(f"margin ({spell(settings.margin)}) must be shorter than lease ({spell(settings.lease)})")
    for name in POSITIVE_TIMES:
        if getattr(settings, name) <= 0:
            raise ConfigError(f"{name} must be longer than nothing, for example {name}='1s'")
    for name in ("concurrency", "max_attempts", "max_crashes", "connections"):
        if getattr(settings, name) < 1:
            raise ConfigError(f"{name} must be at least 1, not {getattr(settings, name)}{from_(name)}")
    for name in ("discovery_batch", "assign_most", "pool_size", "local_queue", "memory", "timeout"):
        value = getattr(settings, name)
        if value is not None and value <= 0:
            raise ConfigError(f"{name} must be more than 0, not {value}")
    for name, example in (
        ("actor", "give a name such as 'ann@ship'"),
        ("version", "give one such as '4f2c1a9' or '2.1'"),
    ):
        given = getattr(settings, name)
        wrong = None if given is None else name_problem(given)
        if wrong is not None:
            raise ConfigError(f"{name} {wrong}{from_(name)}; {example}")
    if settings.pooler not in (None, "transaction"):
        raise ConfigError(f"pooler={settings.pooler!r}: the only pooler mode is 'transaction'")
    if settings.broker is not None and settings.assign_every > 0:
        raise ConfigError(
            "a broker delivers jobs at once, and a worker of pace=steady scans by the clock (assign_every is "
            f"{spell(settings.assign_every)}{from_('assign_every')}); set pace (WINDLASS_PACE) to 'eager' or 'polite', "
            "or give no broker (WINDLASS_BROKER)"
        )
