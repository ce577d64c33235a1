"""The messages in the broker's dead-letter queue. Dead jobs are jobs: they are listed and changed as such."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.documents import Document
from windlass.errors import BrokerUnavailable, JobNotFound, WindlassError
from windlass.model.rows import DeadKind
from windlass.model.state import Verb
from windlass.model.token import Role
from windlass.payload.redact import HIDDEN
from windlass.web.caller import Caller, needs
from windlass.web.service.scrapes import WITHIN
from windlass.web.service.system import SystemService

if TYPE_CHECKING:
    from windlass.model.rows import DeadReport, DeadRow

log = logging.getLogger("windlass")

MOST_READ = 1_000  # letters that are read from the broker at once
AWAY = "the broker does not answer now; the server's log has the reason; look: windlass broker check"


class LetterService(SystemService):
    """A letter has no tenant. Its payload repeats a job's input, so that secrets in it are hidden as in the job."""

    @needs(Role.VIEWER)
    async def letters(self, caller: Caller, count: int) -> Document:
        """The oldest letters, without their payloads."""
        rows, problem = await self._letters(count)
        shown = await asyncio.to_thread(lambda: [self._letter(row, caller) for row in rows])
        return {
            "letters": [{name: value for name, value in each.items() if name != "payload"} for each in shown],
            "broker": self._app.settings.broker is not None,
            "problem": problem,
        }

    @needs(Role.VIEWER)
    async def letter(self, caller: Caller, id: str) -> Document:
        """One letter with its payload."""
        rows, problem = await self._letters(MOST_READ)
        for row in rows:
            if row.id == id:
                return await asyncio.to_thread(self._letter, row, caller)
        if problem is not None:
            raise BrokerUnavailable(problem)
        raise JobNotFound(f"the broker has no {id}: it was replayed or discarded")

    @needs(Role.OPERATOR)
    async def change_letters(self, caller: Caller, verb: Verb, ids: Sequence[str], *, dry_run: bool) -> Document:
        """Replay or discard letters."""
        change = self._app.areplay_dead if verb is Verb.REPLAY else self._app.adiscard_dead
        return {"verb": verb, "dry_run": dry_run, **_report(await change(ids=ids, dry_run=dry_run))}

    async def _remove_copies(self, jobs: Collection[UUID]) -> None:
        """Remove the broker's copies of dead jobs that were changed. What was changed is answered, come what may."""
        from windlass.methods.dead_letters import remove_copies

        settings = self._app.settings
        if settings.broker is None:
            return
        try:
            async with asyncio.timeout(WITHIN):
                _, problem = await self._app._client.aask(lambda store: remove_copies(store, settings, jobs))
        except (WindlassError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
        if problem is not None:
            log.warning("the broker keeps copies of jobs that are not dead any more: %s", problem)

    async def _letters(self, count: int) -> tuple[Sequence[DeadRow], str | None]:
        view = await self._app.adead_letters(count=count, kind=DeadKind.LETTER)
        if view.problem is not None:  # it may hold hosts
            log.warning("the HTTP API lists no letters: %s", view.problem)
        return view.rows, None if view.problem is None else AWAY

    def _letter(self, row: DeadRow, caller: Caller) -> Document:
        names = ("id", "reason", "state", "type", "queue", "at", "job")
        document: Document = {name: getattr(row, name) for name in names}
        try:
            payload = msgspec.json.decode(row.payload or "")
            body = payload["body"]
        except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
            # Nothing tells which of its bytes are secrets.
            shown = self._redaction.text(row.payload or "") if caller.role is Role.ADMIN else HIDDEN
            return {**document, "payload": shown, "reason": self._redaction.text(row.reason or "")}
        # As a job: what is hidden in the body is also hidden where the rest of the payload or the reason repeats it.
        told = self._redaction.job({"input": body, "output": payload, "reason": row.reason})[0]
        return {**document, "payload": told["output"], "reason": told["reason"]}


def _report(report: DeadReport) -> Document:
    document = msgspec.structs.asdict(report)
    if report.problem is not None:
        log.warning("the HTTP API left letters in the broker: %s", report.problem)
    refused = [{"id": id, "reason": reason} for id, reason in report.refused]
    return document | {"refused": refused, "problem": None if report.problem is None else AWAY}
