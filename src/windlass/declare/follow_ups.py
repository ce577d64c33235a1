"""Follow-up jobs: declared with a job type, and stored on each of its jobs.

A sweeper or an operator may write the end of a job, and neither has the program. So the enqueue decides everything that
a follow-up needs: its type, queue, priority, attempts and limits, and which of `id`, `input`, `output` and `error` of
the ended job it takes. The follow-up's own follow-ups are stored with it, down to the first type that is repeated: a
type that follows itself does so once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from windlass.config import Settings
from windlass.errors import EnqueueError, UnknownType
from windlass.model.flow import FollowUp, FollowUps, Moment
from windlass.model.job import DEFAULT_TENANT
from windlass.names import name_problem
from windlass.policy.limit import keys_of

if TYPE_CHECKING:
    from windlass.declare.registry import Definition, Registry

GIVEN = ("id", "input", "output", "error")
"""The names that a follow-up's parameters may have."""

DeclaredFollowUps = tuple[tuple[Moment, str], ...]

encoder = msgspec.json.Encoder()


def parse_follow_ups(given: Mapping[Moment, object]) -> DeclaredFollowUps:
    """The follow-ups of a declaration by their types' names; raises EnqueueError when one is impossible."""
    follow_ups: list[tuple[Moment, str]] = []
    for moment, what in given.items():
        if what is None:
            continue
        definition: Definition | None = getattr(what, "_definition", None)
        if definition is not None:
            _check(f"on_{moment}", definition)
        type = what if definition is None else definition.type
        if not isinstance(type, str) or name_problem(type) is not None:
            raise EnqueueError(f"on_{moment}={what!r}; give a job type of this program, or its type's name")
        follow_ups.append((moment, type))
    return tuple(follow_ups)


def follow_ups_of(
    definition: Definition, registry: Registry, settings: Settings, tenant: str = DEFAULT_TENANT
) -> str | None:
    """The follow-ups stored on a job of this type, as JSON; raises UnknownType or EnqueueError."""
    if not definition.follow_ups:
        return None
    return encoder.encode(_tree(definition, registry, settings, tenant, ())).decode()


def check_follow_ups(registry: Registry, settings: Settings) -> None:
    """Refuse a program with a follow-up that could not be enqueued."""
    for definition in (*registry, *(plan.definition for plan in registry.pipelines.values())):
        follow_ups_of(definition, registry, settings)


def _tree(
    definition: Definition, registry: Registry, settings: Settings, tenant: str, above: tuple[str, ...]
) -> FollowUps:
    if definition.type in above:
        return {}
    path = (*above, definition.type)
    tree: FollowUps = {}
    for moment, type in definition.follow_ups:
        follow_up = _find(definition, moment, type, registry)
        tree[moment] = FollowUp(
            type=follow_up.type,
            names=follow_up.signature.names,
            queue=follow_up.queue,
            priority=follow_up.priority,
            max_attempts=follow_up.attempts(settings),
            limits=keys_of(follow_up, "{}", tenant=tenant, queue=follow_up.queue),  # no key depends on arguments
            then=_tree(follow_up, registry, settings, tenant, path),
        )
    return tree


def _find(definition: Definition, moment: Moment, type: str, registry: Registry) -> Definition:
    what = f"on_{moment} of {definition.type!r}"
    try:
        found = registry.require(type)
    except UnknownType as error:
        raise UnknownType(f"{what}: {error}") from None
    _check(what, found)
    return found


def _check(what: str, follow_up: Definition) -> None:
    """Refuse a follow-up that cannot be made without the program."""
    if follow_up.plan is not None:
        raise EnqueueError(f"{what}: a pipeline cannot follow by itself; name a job type that enqueues it")
    for name in follow_up.signature.names:
        if name not in GIVEN:
            raise EnqueueError(
                f"{what}: {follow_up.type!r} has the parameter {name!r}, and a follow-up is given what it names among: "
                f"{', '.join(GIVEN)}"
            )
    if follow_up.unique is not None:
        raise EnqueueError(
            f"{what}: {follow_up.type!r} is unique, and a follow-up is enqueued where no program can make its key; let "
            "it enqueue the unique job"
        )
    for limit in follow_up.limits:
        # A key of tenant, queue, type and name is made at the enqueue. A key of arguments cannot be: the arguments are
        # known when the job ends, and then there is no program. Not counting the follow-up would exceed the limit.
        if limit.names:
            raise EnqueueError(
                f"{what}: {follow_up.type!r} has the limit {limit.name!r} with a key of arguments, and a follow-up is "
                "enqueued where no program can make it; let it enqueue the limited job"
            )
