"""Whether all is well, and the figures of a range: `app.health()`, `app.overview("1h")`; awaited: `app.ahealth()`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.blocking import blocking
from windlass.clock import seconds
from windlass.errors import ConfigError

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.config import Settings
    from windlass.model.figures import FigureRow
    from windlass.model.job import Job
    from windlass.model.reports.health import Health, Snapshot
    from windlass.model.reports.overview import Overview
    from windlass.model.rows import QueueRow, WorkerRow
    from windlass.store.protocol import Store

Hide = Callable[["Job", str], str]
"""Replaces the secrets of a job, and what looks like a secret, in a text about that job."""
HOUR = 3600.0  # seconds
SHORTEST, LONGEST = 60.0, 31 * 86_400.0  # seconds of a range
NEWEST_DEAD = 20  # dead jobs whose errors are compared
CHANGES_READ = 100  # of which the newest five are shown, and gates are marked in charts
LONGEST_CAUSE = 60  # characters


class OverviewReads:
    """The methods of `Windlass` that tell how the whole system is."""

    settings: Settings
    _client: Client
    _noun = "app"

    async def ahealth(self) -> Health:
        """Whether all is well, in one sentence: `print(app.health().sentence)`.

        `health.ok` is False where an operator should look: a queue without a worker, a queue that does not move, too
        many dead jobs, a queue that grows, a late schedule, a closed gate or a spent budget with jobs behind it. The
        worst of them is the sentence, `health.findings` are the others, and each has the commands that help.
        `health.queues` has each queue, the worst first, and when it will be empty.
        """
        return await self._client.aask(lambda store: read_health(store, hide_secrets(self.settings.redact)))

    async def aoverview(self, range: str | float = "1h") -> Overview:
        """The health, and six figures over a range with the range before: `app.overview("15m").figures`.

        The figures are due jobs, running jobs, jobs that ended per second, the share of dead ones, and p95 of wait and
        run. `overview.steps` is a series of at most 60 steps for a chart, `overview.queues` has each queue with its
        depth over the range, and `overview.changes` are the last five actions of operators. A range has from a minute
        to 31 days; figures are kept as long as the history.
        """
        wanted = seconds(range, what="range")
        if not SHORTEST <= wanted <= LONGEST:
            raise ConfigError(f"range={range!r}: give a range from '1m' to '31d'")
        return await self._client.aask(lambda store: read_overview(store, wanted, hide_secrets(self.settings.redact)))

    health = blocking(ahealth)
    overview = blocking(aoverview)


def hide_secrets(names: Sequence[str]) -> Hide:
    """A sentence may be shown to users who may not see secrets: an error's text is hidden as in the HTTP API."""

    def hide(job: Job, text: str) -> str:
        from windlass.policy.redaction import Redaction

        return str(Redaction(names).about(job.document(), text))

    return hide


async def read_health(store: Store, hide: Hide) -> Health:
    from windlass.policy.reports.health import assess

    return assess(await read_snapshot(store, hide))


async def read_idle_queues(store: Store, rows: Sequence[QueueRow], workers: Sequence[WorkerRow]) -> list[QueueRow]:
    """Queues that have no job now: live workers name them, or announced types, which stay as long as the history."""
    from windlass.model.rows import QueueRow

    served = {queue for worker in workers if worker.alive for queue in worker.queues or ()}
    names = (served | {row.queue for row in await store.types()}) - {row.queue for row in rows}
    return [QueueRow(queue=name, queued=0, running=0, failed=0, waiting=0, dead=0, lag=None) for name in sorted(names)]


async def read_overview(store: Store, range: float, hide: Hide) -> Overview:
    from windlass.policy.reports.health import assess
    from windlass.policy.reports.overview import DEPTHS, grid_of, survey
    from windlass.policy.reports.queue_health import STEP

    grid = grid_of(await store.now(), range)
    figures = await store.figures(since=2 * grid.length, step=grid.step)
    # Figures are half of an overview's time: where the range has the steps of the health, they are read once.
    covered = grid.step == STEP and 2 * grid.length >= HOUR
    begin = grid.now - timedelta(seconds=HOUR)
    snapshot = await read_snapshot(store, hide, [row for row in figures if row.at >= begin] if covered else None)
    idle = await read_idle_queues(store, snapshot.queues, snapshot.workers)
    snapshot = msgspec.structs.replace(snapshot, queues=[*snapshot.queues, *idle])
    return survey(
        snapshot,
        assess(snapshot),
        grid,
        figures=figures,
        depths=await store.depths(since=grid.length, step=max(10.0, grid.length / DEPTHS)),
        changes=await store.changes(page=CHANGES_READ),
    )


async def read_snapshot(store: Store, hide: Hide, figures: Sequence[FigureRow] | None = None) -> Snapshot:
    """The rows that the health is told from; tenants and errors are read only where a sentence needs them.

    `figures` are those of the last hour, if they were read already.
    """
    from windlass.model.reports.health import Snapshot, Trouble
    from windlass.policy.reports.health import assess
    from windlass.policy.reports.queue_health import STEP, WINDOW

    snapshot = Snapshot(
        now=await store.now(),
        queues=await store.queues(),
        due=await store.count_due(),
        workers=await store.workers(),
        gates=await store.gates(),
        figures=await store.figures(since=HOUR, step=STEP) if figures is None else figures,
        depths=await store.depths(since=WINDOW),
        schedules=await store.schedules(),
        budgets=await store.budgets(),
    )
    of_tenants = [gate for gate in snapshot.gates if gate.is_closed and gate.kind == "tenant"]
    if of_tenants or any(row.is_spent and row.kind == "tenant" for row in snapshot.budgets):
        snapshot = msgspec.structs.replace(snapshot, tenants=await store.tenants())
    health = assess(snapshot)
    if any(queue.dead_share for queue in health.queues) and Trouble.ERRORS in _troubles(health):
        snapshot = msgspec.structs.replace(snapshot, cause=await _read_cause(store, hide))
    return snapshot


def _troubles(health: Health) -> set[str]:
    """The troubles that were found; the sentence's own is not among the findings, and then its level is bad."""
    return {finding.trouble for finding in health.findings} | ({"errors"} if health.level == "bad" else set())


async def _read_cause(store: Store, hide: Hide) -> str | None:
    """The most frequent error of the newest dead jobs. More than one in a hundred ends is dead: they are soon found."""
    from windlass.model.audit import DEAD, EXHAUSTED

    ends = [row for action in (DEAD, EXHAUSTED) for row in await store.audit(action=action, page=NEWEST_DEAD)]
    newest = sorted(ends, key=lambda row: row.number)[-NEWEST_DEAD:]
    jobs = await store.find_many([row.job for row in newest if row.job is not None])
    failures = [(job, failure) for job in jobs.values() if (failure := job.failure()) is not None]
    texts = Counter(hide(job, str(failure).partition("\n")[0].removeprefix("windlass.")) for job, failure in failures)
    if not texts:
        return None
    cause = texts.most_common(1)[0][0]
    return cause.rstrip(".") if len(cause) <= LONGEST_CAUSE else f"{cause[:LONGEST_CAUSE]}…"
