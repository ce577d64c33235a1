"""Jobs that have been due for long and reached no worker: published again, or dead. Written once for both stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from windlass.clock import spell
from windlass.model import audit
from windlass.model.delivery import UndeliveredAction
from windlass.model.state import Verb
from windlass.policy.fingerprint import fingerprint
from windlass.store.parts.consequences import propagate
from windlass.store.parts.statements import Statements, run, uuid_of

T = TypeVar("T")

ERROR = "Undelivered"  # the type of the error that such a job has


class UndeliveredPart:
    """The part of a store that treats these jobs. The store supplies the lanes, and how statements are run."""

    async def _lanes_of_jobs(self) -> Sequence[Mapping[str, object]]:
        """Where claimable jobs are, without what is closed: the columns of the claim's index, by name."""
        raise NotImplementedError

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """Run the statements in a transaction of their own."""
        raise NotImplementedError

    async def undelivered(self, *, older: float, action: UndeliveredAction, page: int = 500) -> int:
        treated = 0
        for lane in await self._lanes_of_jobs():
            place: Mapping[str, object] | None = {"after_at": None, "after_id": None}
            while place is not None:  # each page begins after the last job of the one before, and so this ends
                asked = {**lane, **place, "older": older, "page": page}
                count, place = await self._treat_page(asked, action)
                treated += count
        return treated

    async def _treat_page(
        self, asked: Mapping[str, Any], action: UndeliveredAction
    ) -> tuple[int, Mapping[str, object] | None]:
        def treat() -> Statements[tuple[int, Mapping[str, object] | None]]:
            found = yield from run("undelivered_jobs", [asked])
            jobs = [uuid_of(row[0]) for row in found]
            if not jobs:
                return 0, None
            if action is UndeliveredAction.PUBLISH:
                count = len((yield from run("publish_again", jobs)))
            else:
                count = yield from bury_undelivered(jobs, asked["older"])
            ended, at = found[-1]
            return count, {"after_at": at, "after_id": ended} if len(found) == asked["page"] else None

        return await self._run_in_transaction(treat)


def bury_undelivered(jobs: Sequence[UUID], older: float) -> Statements[int]:
    """Mark claimable jobs dead, with everything that their end causes; returns how many."""
    message = f"the job was due for over {spell(older)}, and no delivery of the broker brought it to a worker"
    group = fingerprint(ERROR, message)
    lost = [{"id": job, "message": message, "fingerprint": group} for job in sorted(jobs)]
    dead = [uuid_of(row[0]) for row in (yield from run("bury_undelivered", lost))]
    if dead:
        action = audit.action(Verb.BURY_UNDELIVERED)
        yield from run("record_job_action", [{"action": action, "actor": None, "job": job} for job in dead])
        yield from propagate(dead)
    return len(dead)
