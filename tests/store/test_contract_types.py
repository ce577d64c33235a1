"""Announced types in the store: the last announcement counts, and old ones go with the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.model.job_types import TypeRow

from .rig import TYPE

if TYPE_CHECKING:
    from .rig import Rig

DAY = 86_400.0


def row(name: str, queue: str = "default") -> TypeRow:
    return TypeRow(name=name, type=name, queue=queue, max_attempts=4, parameters={"type": "object"})


async def names(rig: Rig) -> list[str]:
    return [each.name for each in await rig.store.types()]


async def test_announced_types_are_listed_by_name(rig: Rig) -> None:
    await rig.store.announce([row("b"), row("a", queue="ü\0")])
    await rig.store.announce([])

    assert await names(rig) == ["a", "b"]
    assert [each.queue for each in await rig.store.types("a", "c")] == ["ü\0"]


async def test_the_last_announcement_of_a_name_counts(rig: Rig) -> None:
    await rig.store.announce([row("a", queue="old"), row("b")])
    await rig.store.announce([row("a", queue="new")])

    assert [each.queue for each in await rig.store.types()] == ["new", "default"]


async def test_a_document_that_this_version_cannot_read_is_left_out(rig: Rig) -> None:
    await rig.store.announce([row("a"), row("b")])
    await rig.run("UPDATE {}types SET document = '[]' WHERE name = 'a'")

    assert await names(rig) == ["b"]


async def test_old_types_are_pruned_unless_a_worker_lists_them(rig: Rig) -> None:
    """Workers announce at their start only, and may run for longer than the history is kept."""
    await rig.store.announce([row(TYPE), row("gone")])
    rig.clock.advance(2 * DAY)
    await rig.move()
    await rig.store.announce([row("fresh")])

    await rig.store.prune(history=DAY, audit=DAY)

    assert await names(rig) == sorted(["fresh", TYPE])
