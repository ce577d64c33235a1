"""The steady pace followed event by event against the timetable of seeds 000 and 001."""

from __future__ import annotations

import asyncio
import itertools

from windlass import Context, State
from windlass.model.processors import ProcessorState

from .rig import Database, attempts
from .timetable import Site

FIRST, SECOND, THIRD = "website-analysis", "prompt-forming", "model-analysis"
NEVER_FORMED, STUCK_AT_FIRST = 5, 7  # the sites that give trouble


async def test_the_timetable_of_the_seeds(still_database: Database) -> None:
    async def work(phase: str, ctx: Context, n: int) -> None:
        if phase == SECOND and n == NEVER_FORMED:
            raise RuntimeError("no prompts")
        if phase == THIRD and n == STUCK_AT_FIRST and ctx.attempt == 1:
            await asyncio.Event().wait()
        await site.clock.sleep({FIRST: 25 if 3 <= n < 10 else 20, SECOND: 10, THIRD: 20}[phase])

    site = Site(still_database, work)
    jobs = await site.creates(12)
    async with site.working():
        await site.until(60)
        assert [await jobs[n].astatus() for n in (0, 9, 10, 11)] == [State.RUNNING] * 2 + [State.QUEUED] * 2
        assert (site.starts, await jobs[10].alabel()) == ([], "not-started")

        await site.until(120)
        assert (await jobs[3].astatus(), await jobs[3].alabel()) == (State.QUEUED, SECOND)

        await site.until(630)
        failed, stuck = await jobs[NEVER_FORMED].arecord(), await jobs[STUCK_AT_FIRST].arecord()
        labels = [await job.alabel() for job in jobs]

    check_scans(site)
    check_starts(site)
    check_ends(site)
    assert (failed.status, failed.attempt, failed.phase) == (State.DEAD, 4, SECOND)
    assert [each.outcome for each in attempts(stuck)] == ["succeeded", "succeeded", "timeout"]
    assert (stuck.status, stuck.attempt, stuck.phase) == (State.SUCCEEDED, 2, THIRD)
    assert labels == ["failed" if n == NEVER_FORMED else "completed" for n in range(12)]


def check_scans(site: Site) -> None:
    """Once a minute every phase, the earlier first: ten rows at most, the oldest first, untouched for 30 s."""
    assert [(second, phase) for second, phase, _ in site.scans] == list(
        itertools.product(range(60, 631, 60), (FIRST, SECOND, THIRD))
    )
    assert found(site, FIRST) == {60: list(range(10)), 120: [10, 11]}
    assert found(site, SECOND) == {
        120: [0, 1, 2],  # the others ended at 95 and later
        180: [3, 4, 5, 6, 7, 8, 9, 10, 11],
        240: [NEVER_FORMED],
        300: [NEVER_FORMED],
        360: [NEVER_FORMED],
    }
    assert found(site, THIRD) == {180: [0, 1, 2], 240: [3, 4, 6, 7, 8, 9, 10, 11], 600: [STUCK_AT_FIRST]}


def check_starts(site: Site) -> None:
    """Every five seconds, three of each phase at most, the earlier phase first, in processors with names."""
    assert site.starts[:10] == [
        (65, f"{FIRST}-processor-1", 0), (65, f"{FIRST}-processor-2", 1), (65, f"{FIRST}-processor-3", 2),
        (70, f"{FIRST}-processor-4", 3), (70, f"{FIRST}-processor-5", 4), (70, f"{FIRST}-processor-6", 5),
        (75, f"{FIRST}-processor-7", 6), (75, f"{FIRST}-processor-8", 7), (75, f"{FIRST}-processor-9", 8),
        (80, f"{FIRST}-processor-10", 9),
    ]  # fmt: skip
    later: dict[int, list[tuple[str, int]]] = {}
    for second, name, n in site.starts[10:]:
        later.setdefault(second, []).append((name.rpartition("-processor-")[0], n))
    assert later == {
        125: [(FIRST, 10), (FIRST, 11), (SECOND, 0), (SECOND, 1), (SECOND, 2)],
        185: [(SECOND, 3), (SECOND, 4), (SECOND, NEVER_FORMED), (THIRD, 0), (THIRD, 1), (THIRD, 2)],
        190: [(SECOND, 6), (SECOND, 7), (SECOND, 8)],
        195: [(SECOND, 9), (SECOND, 10), (SECOND, 11)],
        245: [(SECOND, NEVER_FORMED), (THIRD, 3), (THIRD, 4), (THIRD, 6)],
        250: [(THIRD, STUCK_AT_FIRST), (THIRD, 8), (THIRD, 9)],
        255: [(THIRD, 10), (THIRD, 11)],
        305: [(SECOND, NEVER_FORMED)],
        365: [(SECOND, NEVER_FORMED)],
        605: [(THIRD, STUCK_AT_FIRST)],
    }


def check_ends(site: Site) -> None:
    """Three retries, one per scan; and five minutes for an attempt, after which a retry is counted too."""
    ends = sorted(site.ends)
    assert [(second, n) for second, phase, n, _ in ends if phase == FIRST] == [
        *((85, n) for n in (0, 1, 2)), *((95, n) for n in (3, 4, 5)), *((100, n) for n in (6, 7, 8)), (105, 9),
        (145, 10), (145, 11),
    ]  # fmt: skip
    assert [end for end in ends if end[3] != "succeeded"] == [
        (185, SECOND, NEVER_FORMED, "raised"),
        (245, SECOND, NEVER_FORMED, "raised"),
        (305, SECOND, NEVER_FORMED, "raised"),
        (365, SECOND, NEVER_FORMED, "raised"),
        (550, THIRD, STUCK_AT_FIRST, "timeout"),
    ]
    assert ends[-1] == (625, THIRD, STUCK_AT_FIRST, "succeeded")


async def test_a_processor_in_error_is_reset_by_the_next_health_check(still_database: Database) -> None:
    async def work(phase: str, ctx: Context, n: int) -> None:
        await asyncio.Event().wait()

    site = Site(still_database, work)
    (job,) = await site.creates(1)
    async with site.working():
        await site.until(360)
        assert states(site) == {f"{FIRST}-processor-1": ProcessorState.BUSY}

        await site.until(365)  # five minutes after 65
        assert states(site) == {f"{FIRST}-processor-1": ProcessorState.ERROR}
        assert (site.ends, await job.astatus()) == ([(365, FIRST, 0, "timeout")], State.FAILED)
        await site.until(385)
        assert states(site) == {f"{FIRST}-processor-1": ProcessorState.ERROR}

        await site.until(390)  # the health check: every thirty seconds
        assert states(site) == {f"{FIRST}-processor-1": ProcessorState.IDLE}
        assert await job.alabel() == FIRST


async def test_ten_processors_per_phase_and_thirty_in_all(still_database: Database) -> None:
    gates = {phase: asyncio.Event() for phase in (FIRST, SECOND, THIRD)}

    async def work(phase: str, ctx: Context, n: int) -> None:
        if n >= {FIRST: 20, SECOND: 10, THIRD: 0}[phase]:  # ten of the sites stay in each phase
            await gates[phase].wait()

    site = Site(still_database, work, timeout="1h")
    await site.creates(35)
    async with site.working():
        await site.until(480)
        names = sorted(each.name for each in site.worker.state.pools if each.state is ProcessorState.BUSY)
        assert names == sorted(
            f"{phase}-processor-{n}" for phase, n in itertools.product((FIRST, SECOND, THIRD), range(1, 11))
        )
        assert site.worker.state.local_queue.waiting(FIRST) == 5
        for gate in gates.values():
            gate.set()


async def test_a_full_local_queue_takes_no_more_from_its_phase(still_database: Database) -> None:
    async def work(phase: str, ctx: Context, n: int) -> None:
        await asyncio.Event().wait()

    site = Site(still_database, work, processors=1, local_queue=12, timeout="1h")
    await site.creates(30)
    async with site.working():
        await site.until(240)

    # Ten; one of them started; then what is left of the twelve places.
    assert found(site, FIRST) == {60: list(range(10)), 120: [10, 11, 12]}
    assert [second for second, phase, _ in site.scans if phase == FIRST] == [60, 120]  # no room: no claim
    assert len([phase for _, phase, _ in site.scans if phase == SECOND]) == 4


def states(site: Site) -> dict[str, ProcessorState]:
    return {processor.name: processor.state for processor in site.worker.state.pools}


def found(site: Site, phase: str) -> dict[int, list[int]]:
    """What the scans of a phase found, by their second."""
    return {second: numbers for second, scanned, numbers in site.scans if scanned == phase and numbers}
