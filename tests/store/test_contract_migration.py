"""The schema: made once, checked at every start, never touched by an older program."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from windlass.errors import SchemaMissing, SchemaOutdated, SchemaTooNew
from windlass.store.migrate import newest

if TYPE_CHECKING:
    from .rig import Rig


async def test_a_second_migration_finds_nothing_to_do(rig: Rig) -> None:
    assert await rig.migrator.migrate() == []
    assert await rig.migrator.current() == newest(rig.dialect)


async def test_migrators_at_once_are_one_migration(rig: Rig) -> None:
    results = await asyncio.gather(*[rig.migrator.migrate() for _ in range(4)])

    assert results == [[], [], [], []]


async def test_a_newer_schema_is_refused_and_left_alone(rig: Rig) -> None:
    await rig.store.close()
    await rig.run("INSERT INTO {}migrations (number, name) VALUES (9999, 'future')")

    with pytest.raises(SchemaTooNew, match="9999"):
        await rig.store.open()
    with pytest.raises(SchemaTooNew, match="9999"):
        await rig.migrator.migrate()

    assert await rig.migrator.current() == 9999


async def test_a_database_without_a_schema_says_how_to_make_one(rig: Rig) -> None:
    await rig.store.close()
    await rig.run("DELETE FROM {}migrations")

    with pytest.raises((SchemaMissing, SchemaOutdated), match="windlass migrate"):
        await rig.store.open()
