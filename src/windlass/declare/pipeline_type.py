"""What `app.pipeline(…)` returns: it enqueues as a job type does, for jobs that move through phases.

Apart from `pipeline.py`, which the registry imports: this module needs the job types, which need the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from windlass.declare.follow_ups import parse_follow_ups
from windlass.declare.jobtype import ConfiguredJob, JobType, TypedCall
from windlass.declare.options import NONE
from windlass.declare.pipeline import Phase, Plan, check_labels
from windlass.errors import EnqueueError, RegistrationError
from windlass.model.flow import Moment

if TYPE_CHECKING:
    from windlass.app import Windlass

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class PipelineOptions(TypedDict, total=False):
    """What `app.pipeline(…)` takes beside its phases."""

    labels: dict[str, str] | None
    on_dead: JobType[..., Any] | str | None
    on_cancelled: JobType[..., Any] | str | None
    on_succeeded: JobType[..., Any] | str | None


class Pipeline(ConfiguredJob[P, R_co]):
    """A list of phases. The arguments are the first phase's, the result is the last phase's.

    The options `queue`, `max_attempts` and `limits` are for the first phase: later phases have those of their types.
    """

    def __init__(self, app: Windlass, plan: Plan) -> None:
        super().__init__(app, plan.definition, NONE)
        self.name = plan.name
        """The name that `app.pipeline(…)` was given; `job.record().pipeline` has it."""
        self._plan = plan

    def __repr__(self) -> str:
        return f"<pipeline {self.name!r}: {' → '.join(self.phases)}>"

    @property
    def phases(self) -> tuple[str, ...]:
        """The names of the phases, in order."""
        return tuple(phase.name for phase in self._plan.phases)


def phase(job: JobType[P, R], *, name: str | None = None, processors: int | None = None) -> Phase[P, R]:
    """A job type as a phase with its own name or its own size of pool: `phase(analyse, processors=10)`."""
    given: object = job
    if not isinstance(given, JobType):
        hint = ", without options" if isinstance(given, ConfiguredJob) else ""
        raise RegistrationError(
            f"{_describe(given)} cannot be a phase; give a function that is decorated with @app.job{hint}"
        )
    definition = job._definition
    if processors is not None and (isinstance(processors, bool) or not isinstance(processors, int) or processors < 1):
        raise RegistrationError(f"phase({definition.type}): processors={processors!r}; a pool has at least 1 processor")
    return Phase(
        name=definition.type if name is None else name,
        definition=definition,
        app=job._app,
        attempts=definition.attempts(job._app.settings),
        processors=processors,
    )


def make_plan(
    app: Windlass, name: str, phases: Sequence[object], *, labels: object, follow_ups: Mapping[Moment, object]
) -> Plan:
    """The checked plan of a declared pipeline."""
    what = f"pipeline {name!r}"
    chosen: list[Phase[..., Any]] = []
    for item in phases:
        if isinstance(item, (list, tuple)):
            raise RegistrationError(f"{what}: list its phases one by one: app.pipeline({name!r}, analyse, ask)")
        if not isinstance(item, (JobType, Phase)):
            raise RegistrationError(
                f"{what}: {_describe(item)} is neither a job type nor a phase; decorate the function with @app.job, "
                "and give options in phase(…)"
            )
        each = item if isinstance(item, Phase) else phase(item)
        if each.app is not app:
            raise RegistrationError(f"{what}: job type {each.type!r} belongs to another app; declare it on this one")
        chosen.append(each)
    try:
        followers = parse_follow_ups(follow_ups)
    except EnqueueError as error:
        raise RegistrationError(f"{what}: {error}") from None
    return Plan(name, chosen, labels=check_labels(what, labels), follow_ups=followers)


def _describe(item: object) -> str:
    """A call by its job type: its repr has many lines."""
    return f"a call of {item.definition.type!r}" if isinstance(item, TypedCall) else repr(item)
