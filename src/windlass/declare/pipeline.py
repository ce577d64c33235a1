"""The next phase of a pipeline's job, decided before an attempt starts and written with its success.

The next phase is decided before the attempt: the coordinator calls `next_phase` when it starts a job. The answer waits
in the execution, and a success carries it into the finishing transition, which moves the job to that phase. So a job
with an unknown next phase fails before its handler runs. A child process that commits the finish itself calls
`next_phase` after its handler.

A pipeline is a list of phases with a job type each. One job moves through them: it keeps its id and its input, and
gets the type, the queue and the attempts of the phase it enters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

import msgspec

from windlass.config import suggest
from windlass.errors import EnqueueError, FlowError, RegistrationError
from windlass.model.flow import Advance
from windlass.model.job import Job
from windlass.model.state import FINAL, State
from windlass.names import name_problem
from windlass.policy.limit import keys_of

if TYPE_CHECKING:
    from windlass.declare.follow_ups import DeclaredFollowUps
    from windlass.declare.registry import Definition, Registry

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


def next_phase(registry: Registry, job: Job) -> Advance | None:
    """The phase after the job's present one; None in the last phase, and for a job without a pipeline.

    Raises FlowError when this program does not have the phase, or cannot make the keys of the next phase's limits: the
    attempt ends with it, as with any error.
    """
    if job.pipeline is None:
        return None
    plan = plan_of(registry, job)
    place = plan.place(job) + 1
    return plan.entry(place, job) if place < len(plan.phases) else None


def plan_of(registry: Registry, job: Job) -> Plan:
    """The pipeline of a job."""
    plan = None if job.pipeline is None else registry.pipelines.get(job.pipeline)
    if plan is None:
        raise FlowError(
            f"the job is in pipeline {job.pipeline!r}, which this program does not have; declare it again: "
            f"app.pipeline({job.pipeline!r}, …), or cancel the job"
        )
    return plan


@dataclass(frozen=True, kw_only=True)
class Phase(Generic[P, R_co]):
    """A job type in a pipeline."""

    name: str
    definition: Definition
    app: object  # to which the job type belongs
    attempts: int
    processors: int | None = None  # of its pool in a worker; None: the setting pool_size

    @property
    def type(self) -> str:
        return self.definition.type


class Plan:
    """A pipeline as a program declared it. Checked when it is made."""

    def __init__(
        self,
        name: str,
        phases: Sequence[Phase[..., object]],
        *,
        labels: dict[str, str] | None = None,
        follow_ups: DeclaredFollowUps = (),
    ) -> None:
        self.name = name
        self.phases = tuple(phases)
        self.labels = labels or {}
        self.follow_ups = follow_ups
        _check_names(self)
        _check_parameters(self)
        _check_follow_ups(self)
        self._places = {phase.name: place for place, phase in enumerate(self.phases)}

    def place(self, job: Job) -> int:
        """The index of the job's phase; raises FlowError when the program has no phase of that name any more."""
        place = self._places.get(job.phase)
        if place is None:
            raise FlowError(
                f"the job is in phase {job.phase!r}, which pipeline {self.name!r} of this program does not have; there "
                f"are: {', '.join(self._places)}; give one of them that name, or cancel the job"
            )
        return place

    def entry(self, place: int, job: Job) -> Advance:
        """What changes about a job when it enters the phase at `place`."""
        phase = self.phases[place]
        return Advance(
            type=phase.type,
            phase=phase.name,
            phase_rank=place,
            queue=phase.definition.queue,
            max_attempts=phase.attempts,
            limits=_limits(phase, job),
        )

    @cached_property
    def definition(self) -> Definition:
        """How a job of this pipeline is enqueued and what it returns: the first phase with the last phase's result."""
        first, last = self.phases[0].definition, self.phases[-1].definition
        signature = first.signature.with_result_of(last.signature, name=self.name)
        return msgspec.structs.replace(
            first, signature=signature, labels=self.labels, follow_ups=self.follow_ups, plan=self
        )

    def label(self, job: Job) -> str:
        """The phase of a job that moves on; the state's label of a job that has not begun or has ended.

        A live state with a label shows it throughout the first phase: `"running": "not-started"`.
        """
        if job.status in FINAL:
            return self.labels.get(job.status, job.status.value)
        if job.phase_rank == 0:
            return self.labels.get(job.status, job.status.value if job.status is State.QUEUED else job.phase)
        return job.phase

    def unsized(self) -> Plan:
        """The same pipeline with pools as large as the worker."""
        phases = [replace(phase, processors=None) for phase in self.phases]
        return Plan(self.name, phases, labels=self.labels, follow_ups=self.follow_ups)


def phases(registry: Registry) -> dict[str, list[str]]:
    """The phases of all pipelines, earlier phases first, each with the job types that its processors run."""
    ranked = sorted(
        ((rank, phase) for plan in registry.pipelines.values() for rank, phase in enumerate(plan.phases)),
        key=lambda item: item[0],
    )
    found: dict[str, list[str]] = {}
    for _, phase in ranked:
        types = found.setdefault(phase.name, [])
        if phase.type not in types:
            types.append(phase.type)
    return found


def sizes(registry: Registry) -> dict[str, int]:
    """The sizes of pools that a phase sets."""
    every = (phase for plan in registry.pipelines.values() for phase in plan.phases)
    return {phase.name: phase.processors for phase in every if phase.processors is not None}


def check_with(plan: Plan, others: Sequence[Plan]) -> None:
    """Refuse a pipeline that contradicts another one of the program: phases of one name share a pool."""
    known = {phase.type: (phase, other) for other in others for phase in other.phases}
    named = {phase.name: (phase, other) for other in others for phase in other.phases}
    for phase in plan.phases:
        same_type, where = known.get(phase.type, (None, plan))
        if same_type is not None and same_type.name != phase.name:
            raise RegistrationError(
                f"pipeline {plan.name!r}: job type {phase.type!r} is phase {phase.name!r} here and phase "
                f"{same_type.name!r} of pipeline {where.name!r}; a type has one pool: give both phases one name"
            )
        same_name, where = named.get(phase.name, (None, plan))
        if same_name is not None and same_name.processors != phase.processors:
            raise RegistrationError(
                f"pipeline {plan.name!r}: phase {phase.name!r} has processors={phase.processors} here and "
                f"processors={same_name.processors} in pipeline {where.name!r}; they share one pool: give both "
                "the same number, or give this phase another name"
            )


def check_labels(what: str, labels: object) -> dict[str, str] | None:
    """The checked names for states of a declaration."""
    if labels is None:
        return None
    if not isinstance(labels, dict):
        raise RegistrationError(f"{what}: labels={labels!r} is no dict; write labels={{'dead': 'failed'}}")
    states = {state.value: state for state in State}
    for state, label in labels.items():
        if state not in states:
            raise RegistrationError(f"{what}: labels name a state {state!r}{suggest(str(state), states)}")
        problem = name_problem(label)
        if problem is not None:
            raise RegistrationError(f"{what}: the label of {str(state)!r} {problem}")
    return {str(state): label for state, label in labels.items()}


def _limits(phase: Phase[..., object], job: Job) -> tuple[str, ...]:
    """The keys that a job counts against in a later phase, made from the arguments that its handler will get."""
    definition = phase.definition
    if not definition.limits:
        return ()
    try:
        return keys_of(definition, job.input, tenant=job.tenant, queue=definition.queue, lenient=True)
    except EnqueueError as error:
        raise FlowError(f"the job cannot go on to phase {phase.name!r}: {error}") from error


def _check_names(plan: Plan) -> None:
    problem = name_problem(plan.name)
    if problem is not None:
        raise RegistrationError(f"the name of a pipeline {problem}")
    if not plan.phases:
        raise RegistrationError(f"pipeline {plan.name!r} has no phases; list at least one job type")
    names: set[str] = set()
    types: set[str] = set()
    for phase in plan.phases:
        problem = name_problem(phase.name)
        if problem is not None:
            raise RegistrationError(f"pipeline {plan.name!r}: the name of a phase {problem}")
        if phase.type in types:
            raise RegistrationError(
                f"pipeline {plan.name!r} has job type {phase.type!r} twice; a phase is known by its type: declare a "
                'second one for the same function: @app.job(type="…")'
            )
        if phase.name in names:
            raise RegistrationError(
                f"pipeline {plan.name!r} has two phases {phase.name!r}; name one of them: "
                f'phase({phase.definition.fn.__name__}, name="…")'
            )
        names.add(phase.name)
        types.add(phase.type)


def _check_parameters(plan: Plan) -> None:
    """Every phase reads the same input, which the first phase's parameters bind."""
    first = plan.phases[0].definition
    for phase in plan.phases[1:]:
        for name in sorted(phase.definition.signature.required - first.signature.required):
            where = f"pipeline {plan.name!r}: parameter {name!r} of phase {phase.name!r}"
            if name in first.signature.names:
                raise RegistrationError(
                    f"{where} has no default, but has one in the first phase ({first.type!r}), where an enqueue may "
                    "leave it out; give it the same default here"
                )
            raise RegistrationError(
                f"{where} is not in the input, which is bound by the first phase ({first.type!r}); take it there, give "
                "it a default, or read what the phase before returned: ctx.previous"
            )


def _check_follow_ups(plan: Plan) -> None:
    for phase in plan.phases:
        if phase.definition.follow_ups:
            given = ", ".join(f"on_{moment}" for moment, _ in phase.definition.follow_ups)
            raise RegistrationError(
                f"pipeline {plan.name!r}: phase {phase.name!r} has {given} of its own, but the job ends only once, "
                f"with the pipeline; declare it there: app.pipeline({plan.name!r}, …, {given}=…)"
            )
