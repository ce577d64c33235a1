"""What the API does with jobs, for a caller: each method checks the role and the tenant before it asks `Windlass`.

A caller of one tenant finds no job of another: it is answered as a job that does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from windlass.declare.named_calls import NamedCall
from windlass.documents import Document, details_document, open_life_document
from windlass.errors import InvalidOption, RequestRefused, TransitionRefused
from windlass.methods.reads import PAGE
from windlass.model.filter import Filter, parse
from windlass.model.state import FINAL, State, Verb
from windlass.model.token import Role
from windlass.model.trace import read_traceparent
from windlass.payload.redact import HIDDEN
from windlass.web.caller import Caller, needs
from windlass.web.live.bulk import BulkAction, BulkActions
from windlass.web.live.feed import Source
from windlass.web.live.waiting import Awaited
from windlass.web.service.filters import checked_filter, compares_documents, guesses, shows
from windlass.web.service.pages import LEFT_OUT, PageService

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.handles.job import JobHandle
    from windlass.methods.bulk import BulkProgress, Chosen
    from windlass.model.job import Job
    from windlass.model.rows import JobRow

OF_DEAD = (Verb.REPLAY, Verb.DISCARD)  # verbs for dead jobs, of which a broker may hold copies
LARGEST_HINTED = 2_000  # characters of an input that is read for a hint
LONGEST_HINT = 60
LONGEST_MESSAGE = 300  # characters of an error in a list
GUESSED_READS = 20  # pages of one answer to a caller who filters by texts that may repeat a secret
GUESSED_PAGE = 200  # jobs with their inputs at a time
MOST_GUESSED = 20_000  # jobs of a bulk action by such a text


class ApiService(PageService):
    """The operations of the API on one `Windlass`."""

    def __init__(self, app: Windlass) -> None:
        super().__init__(app)
        self.awaited = Awaited(app)
        self.actions = BulkActions()

    # Enqueue

    @needs(Role.OPERATOR, tenants=True)
    async def enqueue(self, caller: Caller, calls: Sequence[NamedCall], key: str | None) -> list[Document]:
        """Store all of these jobs or none; the answer comes after the commit."""
        scoped = [_of_tenant(call, caller) for call in calls]
        handles = await self._app.aenqueue_named(scoped, idempotency_key=key)
        existing = [handle.id for handle in handles if handle.existing]
        known = await self._app.astates(list(dict.fromkeys(existing))) if existing else {}
        return [self._accepted(handle, known[handle.id].state if handle.id in known else None) for handle in handles]

    def _accepted(self, handle: JobHandle[Any], state: State | None) -> Document:
        """A job that held a global key may be another tenant's: its id and state are all that is shown of it."""
        return {"id": handle.id, "existing": handle.existing, "state": state or State.QUEUED}

    # Read

    @needs(Role.VIEWER, tenants=True)
    async def jobs(self, caller: Caller, filter: str, count: int = PAGE, below: UUID | None = None) -> Document:
        """A page of jobs, newest first."""
        return await self._page(checked_filter(self._redaction, caller, filter), caller, count, below)

    @needs(Role.VIEWER, tenants=True)
    async def live_jobs(self, caller: Caller, filter: str) -> Source:
        """The newest page of a list of jobs, by the jobs' ids."""
        parsed = checked_filter(self._redaction, caller, filter)

        async def read() -> dict[str, object]:
            page = await self._page(parsed, caller, PAGE, None)
            return {str(job["id"]): job for job in page["jobs"]}

        return Source("jobs", ("jobs", filter, caller.tenant, guesses(caller, parsed)), read)

    @needs(Role.VIEWER, tenants=True)
    async def job(self, caller: Caller, id: UUID, largest: int | None = None) -> Document:
        """One job, with secrets hidden. An input or output of more than `largest` characters is left out."""
        record = await self._record(caller, id)
        document = await self._document(record)
        return document if largest is None else _without_large(document, record, largest)

    @needs(Role.ADMIN)
    async def reveal(self, caller: Caller, id: UUID) -> Document:
        """One job with its hidden values. The audit has a row before they are shown."""
        record = await self._record(caller, id)
        await self._app.arecord_reveal(id)
        return {**self._labelled(record), "redacted": []}

    @needs(Role.VIEWER, tenants=True)
    async def details(self, caller: Caller, id: UUID) -> Document:
        """What is known about a job beside its own row."""
        handle, record = await self._find(caller, id)
        document = details_document(await handle.adetails())
        if caller.tenant is not None and document["links"]:
            ids = [link["id"] for link in document["links"]]
            seen = {id for id, row in (await self._app.astates(ids)).items() if row.tenant == caller.tenant}
            document["links"] = [link for link in document["links"] if link["id"] in seen]
        return await asyncio.to_thread(self._without_echoes, record, msgspec.to_builtins(document))

    @needs(Role.VIEWER, tenants=True)
    async def result(self, caller: Caller, id: UUID, timeout: float) -> Document:
        """The end of a job, awaited for `timeout` seconds at most."""
        await self._record(caller, id)
        await self.awaited.until_ended(id, timeout)
        document = await self._document(await self._record(caller, id))
        ended = State(document["state"]) in FINAL
        shown = {name: document[name] for name in ("id", "state", "output", "error", "reason")}
        return {**shown, "ended": ended}

    # Change

    @needs(Role.OPERATOR, tenants=True)
    async def operate(self, caller: Caller, id: UUID, verb: Verb) -> Document:
        """Cancel, retry, replay, resume or discard one job."""
        handle, record = await self._find(caller, id)
        calls = {
            Verb.CANCEL: handle.acancel,
            Verb.RETRY: handle.aretry,
            Verb.REPLAY: handle.areplay,
            Verb.RESUME: handle.aresume,
            Verb.DISCARD: handle.adiscard,
        }
        with self._hiding(record):
            state = await calls[verb]()
        if verb in OF_DEAD:
            await self._remove_copies({id})
        return {"id": id, "state": state}

    @needs(Role.OPERATOR, tenants=True)
    async def rerun(self, caller: Caller, id: UUID, input: Document | None, *, discard: bool) -> Document:
        """Run a job again as a new one, perhaps with another input, whose hidden values stay those of the job."""
        handle, record = await self._find(caller, id)
        input = await self._restored(caller, record, input)
        with self._hiding(record):
            made = await handle.arerun(input, discard=discard)
        if discard:
            await self._remove_copies({id})
        return self._accepted(made, None)

    @needs(Role.OPERATOR, tenants=True)
    async def signal(self, caller: Caller, id: UUID, name: str, value: object) -> Document:
        """Send a signal to a job."""
        handle = await self._handle(caller, id)
        return {"id": id, "name": name, "sent": await handle.asignal(name, value)}

    @needs(Role.OPERATOR, tenants=True)
    async def choose(self, caller: Caller, verb: str, filter: str, expected: int | None = None) -> Chosen:
        """The jobs that a bulk action would change, counted exactly."""
        parsed = checked_filter(self._redaction, caller, filter)
        chosen = await self._app.achoose(verb, parsed, tenant=caller.tenant)
        if guesses(caller, parsed):
            chosen = await self._without_guessed(chosen)
        if expected is not None and chosen.count != expected:
            raise TransitionRefused(
                f"now {chosen.count:,} match, and {expected:,} were expected; nothing was changed; confirm the number"
            )
        return chosen

    async def _without_guessed(self, chosen: Chosen) -> Chosen:
        """Only the jobs that show what the filter asks for: the number of the others would tell what is hidden."""
        if chosen.count > MOST_GUESSED:
            raise RequestRefused(
                f"more than {MOST_GUESSED:,} jobs match, and each is read to hide its secrets; narrow the filter, or "
                "choose by fingerprint:…, as the groups of errors do",
                status=422,
            )
        filter = parse(chosen.filter)
        shown: set[UUID] = set()
        below: UUID | None = None
        while rows := await self._app.ajobs(filter, count=GUESSED_PAGE, below=below, tenant=chosen.tenant):
            found = await asyncio.to_thread(self._summaries, rows, filter)
            shown |= {UUID(str(job["id"])) for job in found}
            below = rows[-1].id
        return msgspec.structs.replace(chosen, jobs=tuple(job for job in chosen.jobs if job.id in shown))

    @needs(Role.OPERATOR, tenants=True)
    async def begin_bulk(self, caller: Caller, chosen: Chosen) -> AsyncIterator[BulkProgress]:
        """Change the chosen jobs; the progress comes page by page, and closing the iterator stops the action."""
        return self._with_copies(chosen, self._app.abulk(chosen.verb, chosen, tenant=caller.tenant))

    async def _with_copies(self, chosen: Chosen, progress: AsyncIterator[BulkProgress]) -> AsyncIterator[BulkProgress]:
        try:
            async with contextlib.aclosing(progress) as reports:  # type: ignore[type-var]
                async for report in reports:
                    yield report
        finally:  # of a stopped action, too; a copy whose job is dead still stays
            if chosen.verb in OF_DEAD:
                await self._remove_copies({job.id for job in chosen.jobs})

    @needs(Role.OPERATOR, tenants=True)
    async def start_bulk(self, caller: Caller, verb: str, filter: str, expected: int | None) -> Document:
        """Begin a bulk action that goes on when the caller has gone."""
        self.actions.check_room()
        chosen = await self.choose(caller, verb, filter, expected)
        hidden = self._redaction.refused_term(parse(filter)) is not None  # only an admin may have asked that
        action = BulkAction(chosen, actor=caller.name, tenant=caller.tenant, filter=HIDDEN if hidden else chosen.filter)
        self.actions.begin(action, await self.begin_bulk(caller, chosen))
        return action.document()

    @needs(Role.VIEWER, tenants=True)
    async def bulk_actions(self, caller: Caller) -> Document:
        """The bulk actions of this server that run, and those that ended last."""
        return {"actions": [each.summary() for each in self.actions.of(caller.tenant)]}

    @needs(Role.VIEWER, tenants=True)
    async def live_bulk(self, caller: Caller) -> Source:
        """The bulk actions of this server, by their ids."""
        tenant = caller.tenant

        async def read() -> dict[str, object]:
            return {str(each.id): each.summary() for each in self.actions.of(tenant)}

        return Source("bulk", ("bulk", tenant), read)

    @needs(Role.VIEWER, tenants=True)
    async def bulk_action(self, caller: Caller, id: UUID) -> Document:
        """How far one bulk action is, with the jobs that refused."""
        return self.actions.find(id, caller.tenant).document()

    @needs(Role.OPERATOR, tenants=True)
    async def stop_bulk(self, caller: Caller, id: UUID) -> Document:
        """Stop a bulk action; what was changed stays changed."""
        action = self.actions.find(id, caller.tenant)
        action.stop()
        return action.document()

    # What they share

    @contextlib.contextmanager
    def _hiding(self, record: Job) -> Iterator[None]:
        """A refusal names the job's key, which may repeat a secret."""
        try:
            yield
        except TransitionRefused as error:
            raise TransitionRefused(str(self._redaction.about(record.document(), str(error)))) from error

    async def _page(self, filter: Filter, caller: Caller, count: int, below: UUID | None) -> Document:
        guessed = filter if guesses(caller, filter) else None
        size = count if guessed is None else max(count, PAGE)
        shown: list[Document] = []
        for _ in range(1 if guessed is None else GUESSED_READS):
            rows = await self._app.ajobs(filter, count=size, below=below, tenant=caller.tenant)
            shown += await asyncio.to_thread(self._summaries, rows, guessed)
            if len(shown) >= count or len(rows) < size:
                break
            below = rows[-1].id
        page = shown[:count]
        return {"filter": filter.text, "jobs": page, "next": page[-1]["id"] if len(page) == count else None}

    def _labelled(self, record: Job) -> Document:
        trace, place = read_traceparent(record.trace), self._app.settings.trace_url
        url = None if trace is None or place is None else place.replace("{trace_id}", trace.trace_id)
        return {**record.document(), "label": self._app._registry.label(record), "trace_url": url}

    async def _document(self, record: Job) -> Document:
        # In a thread: a text of a megabyte takes up to seconds, and other requests go on meanwhile.
        document, hidden = await asyncio.to_thread(self._redaction.job, self._labelled(record))
        return {**document, "redacted": hidden}

    def _summaries(self, rows: Sequence[JobRow], guessed: Filter | None) -> list[Document]:
        whole = guessed is not None and compares_documents(guessed)
        documents = [(row, self._redacted(row.document(), whole=whole)) for row in rows]
        shown = [(row, each) for row, each in documents if guessed is None or shows(each, guessed)]
        return [
            {**_summary(each), "hint": self._hint(row, each), "life": open_life_document(row.life())}
            for row, each in shown
        ]

    def _hint(self, row: JobRow, shown: Document) -> str | None:
        """What tells a job from its neighbours of the same type: its key, else its first short arguments."""
        if row.key is not None or len(row.input) > LARGEST_HINTED:
            key: str | None = shown["key"]
            return key
        given = self._redaction.value(msgspec.json.decode(row.input))
        short = [str(value) for value in given.values() if isinstance(value, str | int | float)] if given else []
        told = [each for each in short if each and each != HIDDEN and len(each) <= LONGEST_HINT]
        return " · ".join(told)[:LONGEST_HINT] or None


def _without_large(document: Document, record: Job, largest: int) -> Document:
    """The document without a large input and output; `left_out` has their sizes, as the store has them."""
    sizes = {"input": len(record.input or ""), "output": len(record.output or "")}
    left_out = {name: size for name, size in sizes.items() if size > largest}
    return document | dict.fromkeys(left_out) | {"left_out": left_out}


def _summary(document: Document) -> Document:
    short = {name: value for name, value in document.items() if name not in LEFT_OUT}
    error = short["error"]
    if isinstance(error, dict):
        short["error"] = {"type": error.get("type"), "message": str(error.get("message", ""))[:LONGEST_MESSAGE]}
    return short


def _of_tenant(call: NamedCall, caller: Caller) -> NamedCall:
    """The call in the caller's own tenant; another one's name is refused, as an option that is out of range."""
    if caller.tenant is None:
        return call
    if call.options.get("tenant", caller.tenant) != caller.tenant:
        raise InvalidOption(f"{caller.name} is bound to tenant {caller.tenant}; leave the tenant out")
    return NamedCall(call.type, call.input, {**call.options, "tenant": caller.tenant})
