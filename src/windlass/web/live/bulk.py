"""Bulk actions that run on this server: they go on when their page is closed, and every page can show and stop them.

They live in the memory of this process. A server that stops or restarts ends them after the statements that are under
way, and the next one does not know them; what was changed stays changed, and the audit has a row for each job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.documents import Document
from windlass.errors import JobNotFound, RequestRefused, WindlassError
from windlass.model.job import new_id
from windlass.web.answers import problem_of

if TYPE_CHECKING:
    from windlass.methods.bulk import BulkProgress, Chosen

log = logging.getLogger("windlass")

MOST_RUNNING = 20  # actions at a time: each keeps the ids of its jobs in memory
KEPT = 50  # actions that have ended: a page that opens later finds them


def progress_document(matched: int, report: BulkProgress | None = None) -> Document:
    """How far a bulk action is; without a report, it has not begun."""
    counts = {name: getattr(report, name, 0) for name in ("changed", "asked", "refused")}
    refusals = () if report is None else report.refusals
    return {"matched": matched, **counts, "refusals": [{"id": id, "state": state} for id, state in refusals]}


class BulkAction:
    """One action: what was chosen, how far it is, and how it ended."""

    def __init__(self, chosen: Chosen, *, actor: str, tenant: str | None, filter: str) -> None:
        self.id = new_id()
        self.tenant = tenant
        self.task: asyncio.Task[None] | None = None
        self._stops = False
        self._document: Document = {
            "id": self.id,
            "verb": chosen.verb,
            "filter": filter,
            "actor": actor,
            "began_at": datetime.now(UTC),
            "ended_at": None,
            "state": "running",
            "problem": None,
            **progress_document(chosen.count),
        }

    @property
    def running(self) -> bool:
        return bool(self._document["state"] == "running")

    def document(self) -> Document:
        """The whole state, with the jobs that refused."""
        return dict(self._document)

    def summary(self) -> Document:
        """The state without the jobs that refused: a list of actions is sent to every page."""
        return {name: value for name, value in self._document.items() if name != "refusals"}

    def stop(self) -> None:
        """Begin no further page of jobs. The page under way is finished, so that the numbers are right at the end."""
        self._stops = True

    async def run(self, progress: AsyncIterator[BulkProgress]) -> None:
        state, problem = "done", None
        try:
            async with contextlib.aclosing(progress) as reports:  # type: ignore[type-var]
                async for report in reports:
                    self._document |= progress_document(report.matched, report)
                    if self._stops and not report.done:
                        state = "stopped"
                        break
        except asyncio.CancelledError:
            state = "stopped"
        except WindlassError as error:
            state, problem = "failed", problem_of(error)["detail"]
        except Exception:  # the task is awaited by none: without this its error would never be told
            log.exception("a bulk action of the HTTP API failed")
            state, problem = "failed", "the server failed; its log has the error"
        self._document |= {"state": state, "problem": problem, "ended_at": datetime.now(UTC)}


class BulkActions:
    """The bulk actions of one server."""

    def __init__(self) -> None:
        self._actions: dict[UUID, BulkAction] = {}

    def check_room(self) -> None:
        """Refuse an action above MOST_RUNNING, before its jobs are chosen."""
        if sum(each.running for each in self._actions.values()) >= MOST_RUNNING:
            raise RequestRefused(
                f"{MOST_RUNNING} bulk actions run on this server; wait until one has ended", status=503
            )

    def begin(self, action: BulkAction, progress: AsyncIterator[BulkProgress]) -> None:
        self._actions[action.id] = action
        action.task = asyncio.get_running_loop().create_task(action.run(progress), name="windlass-web-bulk")
        ended = [id for id, each in self._actions.items() if not each.running]
        for id in ended[:-KEPT]:
            del self._actions[id]

    def of(self, tenant: str | None) -> list[BulkAction]:
        """The actions that a caller of this tenant may see, the oldest first; None: all of them."""
        return [each for each in self._actions.values() if tenant in (None, each.tenant)]

    def find(self, id: UUID, tenant: str | None) -> BulkAction:
        for each in self.of(tenant):
            if each.id == id:
                return each
        raise JobNotFound(
            f"there is no bulk action {id} on this server: it never was, is long over, or the server was restarted; "
            "the audit has what was changed"
        )

    async def close(self) -> None:
        """The server stops: no action begins a further job."""
        tasks = [each.task for each in self._actions.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
