"""What a page shows at a glance: health, an overview, facets, suggestions, error groups, phases and stories."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.documents import (
    Document,
    error_document,
    health_document,
    overview_document,
    phase_document,
    story_document,
)
from windlass.errors import AccessDenied, JobNotFound
from windlass.methods.reads import PAGE
from windlass.methods.story import read_story
from windlass.model.filter import parse
from windlass.model.token import Role
from windlass.payload.redact import HIDDEN
from windlass.policy.fingerprint import fingerprint, pattern
from windlass.policy.suggestions import quoted, term_at
from windlass.web.caller import Caller, needs
from windlass.web.live.feed import Source
from windlass.web.service.filters import GUESSED, PLAIN, checked_filter, guesses, shows
from windlass.web.service.letters import LetterService

if TYPE_CHECKING:
    from windlass.handles.job import JobHandle
    from windlass.model.filter import Filter
    from windlass.model.job import Job
    from windlass.model.reports.error_groups import ErrorGroup

HOME_EVERY = 2.0  # seconds between two reads of a live overview
LEFT_OUT = frozenset({"input", "output", "attempts", "follow_ups"})  # of a job in a list: they may be large


class PageService(LetterService):
    """Reads that are made for a page."""

    @needs(Role.VIEWER)
    async def health(self, caller: Caller) -> Document:
        return health_document(await self._app.ahealth())

    @needs(Role.VIEWER)
    async def overview(self, caller: Caller, range: str) -> Document:
        return await self._overview(range)

    @needs(Role.VIEWER)
    async def live_home(self, caller: Caller, range: str) -> Source:
        """The overview, each part as a row."""

        async def read() -> dict[str, object]:
            return dict(await self._overview(range))

        return Source("home", ("home", range), read, HOME_EVERY)

    async def _overview(self, range: str) -> Document:
        document = msgspec.to_builtins(overview_document(await self._app.aoverview(range)))
        hidden: Document = await asyncio.to_thread(self._redaction.value, document)
        return hidden

    @needs(Role.VIEWER, tenants=True)
    async def facets(self, caller: Caller, filter: str) -> Document:
        """How many jobs that match have each value. A reason in a handler's own words may repeat a secret."""
        counted = self._counted(caller, filter)
        document = msgspec.structs.asdict(await self._app.afacets(counted, tenant=caller.tenant))
        own = {text: parse(f"reason:{quoted(text)}") for text in document["reasons"] if text not in PLAIN}
        hidden = own.keys() - await self._shown(caller, counted, own)
        document["reasons"] = {text: count for text, count in document["reasons"].items() if text not in hidden}
        return document

    @needs(Role.VIEWER, tenants=True)
    async def suggestions(self, caller: Caller, text: str, cursor: int) -> Document:
        """What could stand at the cursor of a filter; nothing that holds a secret, and no count that would tell one."""
        typed = term_at(text, cursor)
        found = await self._app.asuggest(text, cursor, tenant=caller.tenant)
        if found and found[0].kind != "mistake":
            stored = {each.text: parse(typed.alone(each.text)) for each in found if not each.said}
            shown: Collection[str]
            try:
                rest = self._counted(caller, typed.rest)
            except AccessDenied:
                shown = set()  # which values there are would tell
            else:
                guessed = typed.field in GUESSED
                shown = await self._shown(caller, rest, stored) if guessed else stored.keys()
            found = [each for each in found if each.said or each.text in shown]
        plain = [each for each in found if self._redaction.text(each.text) == each.text]
        return {"suggestions": [msgspec.structs.asdict(each) for each in plain]}

    async def _shown(self, caller: Caller, filter: Filter, values: Mapping[str, Filter]) -> set[str]:
        """Which stored texts the newest jobs that match show to everyone: in another one a job's secret may be."""
        if not values:
            return set()
        rows = await self._app.ajobs(filter, count=PAGE, tenant=caller.tenant)
        jobs = await asyncio.to_thread(lambda: [self._redacted(row.document()) for row in rows])
        return {text for text, value in values.items() if any(shows(job, value) for job in jobs)}

    def _redacted(self, document: Document, *, whole: bool = False) -> Document:
        """A job of a list. Without a text that could repeat a part of them, input and output are left out unread; the
        `whole` job has them."""
        if not whole and all(document[name] is None for name in ("error", "reason", "key")):
            document = {name: value for name, value in document.items() if name not in LEFT_OUT}
        return self._redaction.job(document)[0]

    @needs(Role.VIEWER, tenants=True)
    async def errors(self, caller: Caller, since: str, queue: str | None) -> Document:
        """The groups of errors."""
        groups = await self._app.aerrors(since, queue=queue, tenant=caller.tenant)
        newest = await self._app._client.aask(lambda store: store.find_many([group.newest for group in groups]))
        messages = await asyncio.to_thread(
            lambda: [self._group_message(group, newest.get(group.newest)) for group in groups]
        )
        documents = [{**error_document(each), "message": text} for each, text in zip(groups, messages, strict=True)]
        if caller.tenant is not None:  # machines are the operator's
            documents = [{**each, "workers": []} for each in documents]
        return {"errors": documents}

    def _group_message(self, group: ErrorGroup, job: Job | None) -> str:
        """The message of a group, from its newest job: a group's own text has the digits of a secret cut out of it, and
        no value of the job is found in it any more. If the job is gone, its secrets are not known.
        """
        for failure in [] if job is None else job.failures():
            if job is not None and fingerprint(failure.type, failure.message) == group.fingerprint:
                return pattern(str(self._redaction.about(job.document(), failure.message)))
        return HIDDEN

    @needs(Role.VIEWER)
    async def phases(self, caller: Caller, since: str) -> Document:
        return {"phases": [phase_document(row) for row in await self._app.aphases(since=since)]}

    @needs(Role.VIEWER, tenants=True)
    async def story(self, caller: Caller, id: UUID) -> Document:
        """A job in words, where its time went, and the jobs around it."""
        record = await self._record(caller, id)
        shown = await asyncio.to_thread(self._with_shown_error, record)
        story = await self._app._client.aask(lambda store: read_story(store, shown, self._with_shown_error))
        document = msgspec.to_builtins(story_document(story))
        if caller.tenant is not None:
            _narrow(document, caller.tenant)
        return await asyncio.to_thread(self._without_echoes, record, document)

    def _with_shown_error(self, job: Job) -> Job:
        """The job with its error and its reason as everyone sees them. A story cuts them: in a part of a secret no
        text would find it."""
        told = self._redaction.job(job.document())[0]
        error = None if job.error is None else msgspec.json.encode(told["error"]).decode()
        return msgspec.structs.replace(job, error=error, reason=told["reason"])

    @needs(Role.OPERATOR, tenants=True)
    async def dry_run(self, caller: Caller, id: UUID, input: Document | None) -> Document:
        """What a replay of a job with this input would meet; nothing is written."""
        handle, record = await self._find(caller, id)
        input = await self._restored(caller, record, input)
        checks = [msgspec.structs.asdict(check) for check in await handle.adry_run(input)]
        # A key may repeat a secret.
        return await asyncio.to_thread(self._without_echoes, record, {"checks": checks})

    async def _restored(self, caller: Caller, record: Job, input: Document | None) -> Document | None:
        """An input that was edited where secrets are hidden, with the job's own secrets in their places."""
        if input is None:
            return None
        may_reveal = caller.role is Role.ADMIN  # as for `reveal`
        document = record.document()
        restored: Document = await asyncio.to_thread(self._redaction.restored, document, input, may_reveal=may_reveal)
        return restored

    def _counted(self, caller: Caller, filter: str) -> Filter:
        """A filter whose matches are counted: a count by the text of errors would tell what is hidden."""
        parsed = checked_filter(self._redaction, caller, filter)
        if guesses(caller, parsed):
            raise AccessDenied("only an admin gets counts by the text of inputs, outputs, errors, reasons and keys")
        return parsed

    async def _handle(self, caller: Caller, id: UUID) -> JobHandle[object]:
        return (await self._find(caller, id))[0]

    async def _record(self, caller: Caller, id: UUID) -> Job:
        return (await self._find(caller, id))[1]

    async def _find(self, caller: Caller, id: UUID) -> tuple[JobHandle[object], Job]:
        """Another tenant's job is refused in the same words as one that never was: the caller learns no ids."""
        with contextlib.suppress(JobNotFound):
            handle = await self._app.afind(id)
            record = await handle.arecord()
            if caller.tenant in (None, record.tenant):
                return handle, record
        raise JobNotFound(f"there is no job {id}: it never was, was discarded, or its history was deleted")


def _narrow(document: Document, tenant: str) -> None:
    """Leave out jobs of other tenants, and the graph where one of them is in it."""
    own = [link for link in document["links"] if link["tenant"] == tenant]
    if len(own) < len(document["links"]) or document["groups"]:
        document["graph"] = None
    document["links"], document["groups"] = own, []
