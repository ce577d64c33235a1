"""The job types of a program: one `Definition` per job type, and the registry of all of them."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

import msgspec

from windlass.clock import Duration, seconds
from windlass.config import Pace, Settings, memory_size, suggest
from windlass.declare.follow_ups import DeclaredFollowUps, parse_follow_ups
from windlass.declare.pipeline import Plan, check_labels, check_with
from windlass.errors import ConfigError, DuplicateType, EnqueueError, RegistrationError, ScheduleError, UnknownType
from windlass.model import audit as actions
from windlass.model.admission import Rule
from windlass.model.flow import Moment
from windlass.model.job import DEFAULT_QUEUE, Job
from windlass.model.schedule import Declaration
from windlass.names import name_problem
from windlass.observe.instruments import Instruments
from windlass.payload.signature import Signature
from windlass.policy.limit import Limit, bind_limits, describe_rule
from windlass.policy.retry import RetryPolicy, exponential, fixed
from windlass.policy.unique import Unique, Uniqueness, parse_unique

if TYPE_CHECKING:
    from windlass.declare.jobtype import JobType

PRIORITIES = range(-32_768, 32_768)
ACTION = re.compile(r"[A-Z][A-Z0-9_]*")
TAKEN = frozenset({actions.EXHAUSTED, actions.DEAD, actions.CANCELLED, actions.RERUN, *actions.OPERATIONS.values()})
"""Actions of the audit that are no success."""


class Isolation(StrEnum):
    """Three ways to execute, and no others."""

    COROUTINE = "coroutine"
    THREAD = "thread"
    PROCESS = "process"


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A job type: a function and the options with which it runs. Checked when it is declared."""

    type: str
    fn: Callable[..., Any]
    signature: Signature
    isolation: Isolation
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int | None = None
    retry: RetryPolicy | None = None
    timeout: float | None = None
    memory: int | None = None
    permanent: tuple[builtins.type[BaseException], ...] = ()
    transient: tuple[builtins.type[BaseException], ...] = ()
    unique: Uniqueness | None = None
    limits: tuple[Limit, ...] = ()  # that its jobs count against
    follow_ups: DeclaredFollowUps = ()
    audit: str | None = actions.SUCCEEDED  # the audit's action for a success; None: no row
    labels: dict[str, str] | None = None  # its own names for states
    plan: Plan | None = None  # of a pipeline's definition

    def attempts(self, settings: Settings) -> int:
        return self.max_attempts or settings.max_attempts

    def limit(self, settings: Settings) -> float | None:
        """The time limit of an attempt in seconds."""
        return self.timeout if self.timeout is not None else settings.timeout

    def retry_policy(self, settings: Settings) -> RetryPolicy:
        return self.retry or DEFAULT_RETRIES[settings.pace]

    def label(self, job: Job) -> str:
        """The name of the job's state, by its type or pipeline."""
        if self.plan is not None:
            return self.plan.label(job)
        return (self.labels or {}).get(job.status, job.status.value)

    def is_permanent(self, error: BaseException) -> bool | None:
        """True: never retry. False: always retry. None: neither list names the error. The nearest class decides."""
        for ancestor in builtins.type(error).__mro__:
            if ancestor in self.permanent:
                return True
            if ancestor in self.transient:
                return False
        return None


DEFAULT_RETRIES: dict[Pace, RetryPolicy] = {
    Pace.EAGER: exponential("10s"),
    Pace.STEADY: exponential("10s"),  # the first scan after the delay claims it
    Pace.POLITE: fixed("5m"),
}


class Registry:
    """The job types of one program."""

    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}
        self._rules: dict[str, tuple[Rule, str]] = {}  # with the place of the declaration
        self._scopes: dict[str, str] = {}  # of each rule's first declaration
        self._keyed: set[str] = set()  # rules with a key per value …
        self._shared: set[str] = set()  # … and rules whose bare name is the key of a job type's limit
        self.pipelines: dict[str, Plan] = {}
        self.schedules: dict[str, Declaration] = {}
        self.subscribers: list[Callable[[Any], object]] = []  # to the events of this program's workers
        self.instruments = Instruments()  # around its enqueues and attempts

    def add(self, definition: Definition) -> None:
        known = self._definitions.get(definition.type)
        if known is not None:
            raise DuplicateType(
                f"job type {definition.type!r} is declared twice, by {place(known.fn)} and {place(definition.fn)}; "
                f'give one of them a name of its own: @app.job(type="…")'
            )
        for limit in definition.limits:
            self._check_rule(limit.rule, place(definition.fn))
        for limit in definition.limits:
            self.add_rule(limit.rule, place(definition.fn), limit.scope, keyed=limit.is_keyed)
            if not limit.is_keyed:
                self._shared.add(limit.name)
        self._definitions[definition.type] = definition

    def add_rule(self, rule: Rule, declared_by: str, scope: str, *, keyed: bool = False) -> None:
        """Add a limit or rate of this program; every declaration of one name has the same rule."""
        self._check_rule(rule, declared_by)
        self._rules.setdefault(rule.name, (rule, declared_by))
        self._scopes.setdefault(rule.name, scope)
        if keyed:
            self._keyed.add(rule.name)

    def rules(self) -> list[Rule]:
        """Every limit and rate of the program, for a worker to declare."""
        return [rule for rule, _ in self._rules.values()]

    def rule(self, name: str) -> Rule | None:
        """The limit or rate of that name; None when only another program declares it."""
        return self._rules[name][0] if name in self._rules else None

    def is_keyed(self, name: str) -> bool:
        """Whether the rule has a key per value, and no job of this program counts against its bare name."""
        return name in self._keyed and name not in self._shared

    def scope_of(self, name: str, type: str | None = None) -> str:
        """The scope of a rule: that of the job type's limit, else that of the first declaration."""
        definition = None if type is None else self.get(type)
        own = () if definition is None else definition.limits
        return next((limit.scope for limit in own if limit.name == name), self._scopes.get(name, "global"))

    def _check_rule(self, rule: Rule, declared_by: str) -> None:
        known, first = self._rules.get(rule.name, (rule, ""))
        if known != rule:
            raise RegistrationError(
                f"limit {rule.name!r} is {describe_rule(known)} by {first} and {describe_rule(rule)} by {declared_by}; "
                "one name has one rule: declare it alike twice, or give one of them another name"
            )

    def add_pipeline(self, plan: Plan) -> None:
        if plan.name in self.pipelines:
            raise RegistrationError(f"pipeline {plan.name!r} is declared twice; give one of them another name")
        check_with(plan, list(self.pipelines.values()))
        self.pipelines[plan.name] = plan

    def add_schedule(self, declaration: Declaration) -> None:
        if declaration.name in self.schedules:
            raise ScheduleError(f"schedule {declaration.name!r} is declared twice; give one of them another name")
        self.schedules[declaration.name] = declaration

    def get(self, type: str) -> Definition | None:
        return self._definitions.get(type)

    def of(self, job: Job) -> Definition | None:
        """The definition with which a job was enqueued and decodes its result: its pipeline's, or its type's."""
        plan = None if job.pipeline is None else self.pipelines.get(job.pipeline)
        return self.get(job.type) if plan is None else plan.definition

    def label(self, job: Job) -> str | None:
        """The program's own name for the job's state; None where it has none."""
        definition = self.of(job)
        name = job.status.value if definition is None else definition.label(job)
        return None if name == job.status.value else name

    def require(self, type: str) -> Definition:
        """The definition, or an error that suggests a similar name."""
        definition = self._definitions.get(type)
        if definition is None:
            raise UnknownType(f"no job type {type!r} in this program{suggest(type, self._definitions)}")
        return definition

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._definitions)

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._definitions.values())

    def __len__(self) -> int:
        return len(self._definitions)


class Contexts(NamedTuple):
    """The classes of context, by the kind of handler that has them."""

    awaited: builtins.type
    blocking: builtins.type


class JobOptions(TypedDict, total=False):
    """The options of `@app.job(…)`; the docstring of `Windlass.job` describes each of them."""

    type: str | None
    queue: str | None
    priority: int
    max_attempts: int | None
    retry: RetryPolicy | None
    timeout: Duration | None
    isolation: Literal["coroutine", "thread", "process"] | Isolation | None
    memory: str | int | None
    permanent: Sequence[builtins.type[BaseException]]
    transient: Sequence[builtins.type[BaseException]]
    unique: Unique | None
    unique_forever: Unique | None
    limits: Sequence[Limit]
    on_dead: JobType[..., Any] | str | None
    on_cancelled: JobType[..., Any] | str | None
    on_succeeded: JobType[..., Any] | str | None
    audit: str | bool
    labels: dict[str, str] | None


def define(
    fn: Callable[..., Any],
    *,
    contexts: Contexts,
    localns: dict[str, Any] | None = None,
    **options: Unpack[JobOptions],
) -> Definition:
    """A checked definition of `fn`; every mistake in a declaration is reported here."""
    signature = Signature.of(fn, contexts=contexts, localns=localns)
    _check_context(fn, signature, contexts)
    return Definition(
        fn=fn,
        signature=signature,
        type=_name(fn, "type", options.get("type"), fn.__name__),
        queue=_name(fn, "queue", options.get("queue"), DEFAULT_QUEUE),
        isolation=_isolation(fn, options.get("isolation"), options.get("memory")),
        priority=_priority(fn, options.get("priority", 0)),
        max_attempts=_attempts(fn, options.get("max_attempts")),
        retry=_retry(fn, options.get("retry")),
        timeout=_limit(fn, options.get("timeout")),
        memory=_memory(options.get("memory")),
        permanent=_exceptions("permanent", options.get("permanent", ()), fn),
        transient=_exceptions("transient", options.get("transient", ()), fn),
        unique=_uniqueness(fn, signature, options.get("unique"), options.get("unique_forever")),
        limits=_limits(fn, signature, options.get("limits", ())),
        follow_ups=_follow_ups(fn, {moment: options.get(f"on_{moment}") for moment in Moment}),
        audit=_success_action(fn, options.get("audit", True)),
        labels=check_labels(place(fn), options.get("labels")),
    )


def _check_context(fn: Callable[..., Any], signature: Signature, contexts: Contexts) -> None:
    """A coroutine awaits its context, and a plain function blocks on it: the other kind would not work."""
    is_coroutine = inspect.iscoroutinefunction(fn)
    fitting = contexts.awaited if is_coroutine else contexts.blocking
    if signature.context not in (None, fitting):
        ctx, kind = next(iter(inspect.signature(fn).parameters)), "async def" if is_coroutine else "def"
        raise RegistrationError(
            f"{place(fn)}: {'a coroutine' if is_coroutine else 'a plain function'} has a {fitting.__name__}; write: "
            f"{kind} {fn.__name__}({ctx}: {fitting.__name__}, …)"
        )


def place(fn: Callable[..., Any]) -> str:
    """The module and name of a function, for messages."""
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', fn)}"


def _isolation(fn: Callable[..., Any], given: str | None, memory: object) -> Isolation:
    """How the function runs. A memory limit can hold a process only, so that it means one."""
    natural = Isolation.COROUTINE if inspect.iscoroutinefunction(fn) else Isolation.THREAD
    if given is None:
        return natural if memory is None else Isolation.PROCESS
    try:
        isolation = Isolation(given)
    except ValueError:
        raise RegistrationError(f"{place(fn)}: isolation={given!r}; there are: {', '.join(Isolation)}") from None
    if isolation is not Isolation.PROCESS and isolation is not natural:
        raise RegistrationError(
            f"{place(fn)}: isolation={given!r} does not fit this function, which runs as a {natural}; "
            "leave it out, or use isolation='process'"
        )
    if memory is not None and isolation is not Isolation.PROCESS:
        raise RegistrationError(f"{place(fn)}: memory={memory!r} limits a process; leave isolation={given!r} out")
    return isolation


def _priority(fn: Callable[..., Any], priority: int) -> int:
    if priority not in PRIORITIES:
        lowest, highest = PRIORITIES.start, PRIORITIES.stop - 1
        raise RegistrationError(f"{place(fn)}: priority={priority!r} is not in {lowest}…{highest}")
    return priority


def _attempts(fn: Callable[..., Any], max_attempts: int | None) -> int | None:
    if max_attempts is not None and (type(max_attempts) is not int or max_attempts < 1):
        raise RegistrationError(
            f"{place(fn)}: max_attempts={max_attempts!r}; a job needs at least 1 attempt; write: max_attempts=4"
        )
    return max_attempts


def _retry(fn: Callable[..., Any], retry: RetryPolicy | None) -> RetryPolicy | None:
    if retry is not None and not hasattr(retry, "delay"):
        raise RegistrationError(f"{place(fn)}: retry={retry!r}; use exponential(…), delays(…) or fixed(…)")
    return retry


def _memory(memory: str | int | None) -> int | None:
    return None if memory is None else memory_size(memory)


def _uniqueness(
    fn: Callable[..., Any], signature: Signature, unique: Unique | None, unique_forever: Unique | None
) -> Uniqueness | None:
    once, forever = unique not in (None, False), unique_forever not in (None, False)
    if once and forever:
        raise RegistrationError(f"{place(fn)}: unique_forever is unique already; leave unique= out")
    try:
        if unique is not None and once:
            return parse_unique(unique, signature)
        if unique_forever is not None and forever:
            return parse_unique(unique_forever, signature, what="unique_forever", forever=True)
    except ConfigError as error:
        raise RegistrationError(f"{place(fn)}: {error}") from None
    return None


def _limits(fn: Callable[..., Any], signature: Signature, limits: object) -> tuple[Limit, ...]:
    try:
        return bind_limits(limits, signature)
    except ConfigError as error:
        raise RegistrationError(f"{place(fn)}: {error}") from None


def _follow_ups(fn: Callable[..., Any], given: dict[Moment, object]) -> DeclaredFollowUps:
    try:
        return parse_follow_ups(given)
    except EnqueueError as error:
        raise RegistrationError(f"{place(fn)}: {error}") from None


def _success_action(fn: Callable[..., Any], audit: str | bool) -> str | None:
    if isinstance(audit, bool):
        return actions.SUCCEEDED if audit else None
    problem = name_problem(audit)
    if problem is not None or not ACTION.fullmatch(audit) or audit in TAKEN:
        raise RegistrationError(
            f"{place(fn)}: audit={audit!r} is no action for a success; write it like 'EMAIL_SENT', or audit=False"
        )
    return audit


def _limit(fn: Callable[..., Any], timeout: Duration | None) -> float | None:
    limit = None if timeout is None else seconds(timeout, what=f"{place(fn)}: timeout")
    if limit == 0:
        raise RegistrationError(f"{place(fn)}: timeout={timeout!r} leaves no time at all; leave it out for no limit")
    return limit


def _name(fn: Callable[..., Any], what: str, given: str | None, default: str) -> str:
    name = default if given is None else given
    problem = name_problem(name)
    if problem is not None:
        raise RegistrationError(f"{place(fn)}: {what} {problem}")
    return name


def _exceptions(
    what: str, given: Sequence[type[BaseException]], fn: Callable[..., Any]
) -> tuple[type[BaseException], ...]:
    if isinstance(given, (str, type)) or not isinstance(given, Iterable):
        raise RegistrationError(f"{place(fn)}: {what} is not a list; write: {what}=[ValueError]")
    for item in given:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise RegistrationError(f"{place(fn)}: {what} lists {item!r}, which is not an exception class")
    return tuple(given)
