"""The way in: a call becomes a `NewJob`, in the caller's own transaction where there is one.

In:   a job type, arguments and options
Out:  a NewJob, checked against the hints and the JSON profile, on its way to the store
Next: store/postgres/store.py and store/sqlite/store.py, whose `enqueue` makes it a row

One store per process runs on the portal's loop; blocking and asynchronous callers use it from any thread and any loop.
An enqueue with `conn=` runs on the caller's connection, and an enqueue inside `ctx.transaction()` joins that one.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar
from uuid import UUID

import msgspec

from windlass.blocking import Portal, describe_like, rename
from windlass.clock import Clock
from windlass.config import Settings
from windlass.declare.follow_ups import follow_ups_of
from windlass.declare.options import NONE, Options
from windlass.declare.registry import Definition, Registry
from windlass.errors import EnqueueError, InvalidInput, UnusableConnection, WindlassError
from windlass.handler.transaction import Joined, current_transaction
from windlass.model.job import DEFAULT_TENANT, Key, NewJob, new_id
from windlass.observe.instruments import Instruments
from windlass.policy.limit import keys_of
from windlass.policy.unique import Uniqueness, idempotency_key, merge_repeated, shorten_key, text_of, unique_key
from windlass.store import dialect_of, make_store, sqlite_location

if TYPE_CHECKING:
    from windlass.connection.borrowed import CallerConnection
    from windlass.store.protocol import Store
    from windlass.transport.direct import DirectPublisher

P = ParamSpec("P")
T = TypeVar("T")

incoming_trace: ContextVar[str | None] = ContextVar("windlass_incoming_trace", default=None)
"""The traceparent of the HTTP request that is answered here: jobs that it enqueues continue its trace."""


class Call(msgspec.Struct, frozen=True):
    """A checked call that is not enqueued yet."""

    definition: Definition
    input: str
    options: Options = NONE
    registry: Registry = Registry()  # to find the types of its follow-ups

    def new_job(self, settings: Settings) -> NewJob:
        """The job that an enqueue writes, with a new id: `call.new_job(app.settings)`."""
        options, definition = self.options, self.definition
        tenant, queue = options.tenant or DEFAULT_TENANT, options.queue or definition.queue
        key, policy = self._key()
        unique = None if policy is None or key is None else unique_key(policy, key, tenant=tenant, type=definition.type)
        return NewJob(
            id=new_id(),
            type=definition.type,
            input=self.input,
            queue=queue,
            tenant=tenant,
            priority=definition.priority if options.priority is None else options.priority,
            max_attempts=options.max_attempts or definition.attempts(settings),
            delay=options.delay,
            run_at=options.run_at,
            key=key,
            pipeline=None if definition.plan is None else definition.plan.name,
            phase=None if definition.plan is None else definition.plan.phases[0].name,
            unique=unique,
            idempotency=self._idempotency(tenant, settings.idempotency_window),
            follow_ups=follow_ups_of(definition, self.registry, settings, tenant),
            limits=self._limits(tenant, queue),
        )

    def _key(self) -> tuple[str | None, Uniqueness | None]:
        """The key that users see, and how it is unique; a key without a policy refuses no job."""
        text, chosen = self.options.key, self.options.unique
        policy = chosen if isinstance(chosen, Uniqueness) else self.definition.unique
        if text is not None:
            return shorten_key(text), None if chosen is False else policy or Uniqueness()
        if policy is None or chosen is False:
            return None, None
        return shorten_key(text_of(policy, self.definition.signature, self.input)), policy

    def _limits(self, tenant: str, queue: str) -> tuple[str, ...]:
        if not self.definition.limits:
            return ()
        return keys_of(self.definition, self.input, tenant=tenant, queue=queue, given=self.options.limits)

    def _idempotency(self, tenant: str, window: float) -> Key | None:
        text = self.options.idempotency_key
        if text is None:
            return None
        type, input = self.definition.type, self.input
        return idempotency_key(shorten_key(text), tenant=tenant, type=type, input=input, window=window)


class Client:
    """Enqueues jobs and asks the store, for blocking and for asynchronous callers."""

    def __init__(self, settings: Settings, clock: Clock, instruments: Instruments | None = None) -> None:
        self.settings = settings
        self.clock = clock
        self.instruments = Instruments() if instruments is None else instruments
        self.portal = Portal()
        self.runs_by_hand: str | None = None  # in a test: how jobs are run, instead of by workers
        self._store: Store | None = None
        self._direct: DirectPublisher | None = None
        self._opening: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._location: str | None = None
        self.noted_unserved = False  # whether it is logged that no worker serves a job that is waited for
        atexit.register(_close, weakref.ref(self))

    # Enqueue

    # Written out for both kinds of callers: a blocking caller's connection is used on the caller's own thread.

    def enqueue(self, jobs: Sequence[NewJob], conn: Any, *, async_name: str) -> Mapping[UUID, UUID]:
        """Write the jobs, blocking; the answer has, by the new id, the id of each job that held a key already."""
        fresh, repeated = merge_repeated(jobs)
        joined = current_transaction.get()
        with self.instruments.sending(fresh, incoming_trace.get()) as traced:
            if conn is not None:
                existing = self._enqueue_on(conn, traced, async_name)
            elif joined is not None:
                self.portal.refuse_on_a_loop(async_name)
                existing = joined.run(joined.transaction.enqueue(traced))
            else:
                existing = self.portal.run(lambda: self._enqueue(traced), async_name=async_name)
        return _with_repeated(existing, repeated)

    async def aenqueue(self, jobs: Sequence[NewJob], conn: Any) -> Mapping[UUID, UUID]:
        """As `enqueue`, awaited."""
        fresh, repeated = merge_repeated(jobs)
        joined = current_transaction.get()
        with self.instruments.sending(fresh, incoming_trace.get()) as traced:
            if conn is not None:
                existing = await self._aenqueue_on(conn, traced)
            elif joined is not None:
                existing = await joined.arun(joined.transaction.enqueue(traced))
            else:
                existing = await self.portal.arun(lambda: self._enqueue(traced))
        return _with_repeated(existing, repeated)

    async def _enqueue(self, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        store = await self.store()
        if self._direct is None:
            return await store.enqueue(jobs)
        marked = self._direct.mark(jobs)
        existing = await store.enqueue(marked)
        await self._direct.publish([job for job in marked if job.id not in existing])
        return existing

    # What a borrowed connection needs is imported with the first one: most programs never give any.

    def _enqueue_on(self, conn: Any, jobs: Sequence[NewJob], async_name: str) -> Mapping[UUID, UUID]:
        from windlass.connection.location import check_identity, location
        from windlass.connection.recognise import borrow

        if isinstance(conn, Joined):
            return conn.run(conn.transaction.enqueue(jobs))
        borrowed = borrow(conn)
        self._check_dialect(borrowed.dialect)
        if not borrowed.runs_on_loop:
            self.portal.refuse_on_a_loop(async_name)
        check_identity(location(borrowed), self.portal.submit(self._where).result())
        existing = borrowed.enqueue(jobs, now=self.clock.now())
        self._wake_after_commit(borrowed, jobs, existing)
        return existing

    async def _aenqueue_on(self, conn: Any, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        from windlass.connection.location import alocation, check_identity
        from windlass.connection.recognise import borrow

        borrowed = borrow(conn)
        self._check_dialect(borrowed.dialect)
        check_identity(await alocation(borrowed), await self.portal.arun(self._where))
        existing = await borrowed.aenqueue(jobs, now=self.clock.now())
        self._wake_after_commit(borrowed, jobs, existing)
        return existing

    def _wake_after_commit(
        self, borrowed: CallerConnection, jobs: Sequence[NewJob], existing: Mapping[UUID, UUID]
    ) -> None:
        written = [job for job in jobs if job.id not in existing]
        if written:
            borrowed.after_commit(lambda: self._wake_soon(written))

    def _check_dialect(self, dialect: str) -> None:
        mine = dialect_of(self.settings.url)
        if dialect != mine:
            raise UnusableConnection(
                f"conn is a {dialect} connection, and this app's jobs are in {mine}; leave conn= out, or give a "
                "connection to the app's own database"
            )

    def _wake_soon(self, jobs: Sequence[NewJob]) -> None:
        """Wake the workers after the caller's commit, without waiting for it."""
        queues = {job.queue for job in jobs if job.is_due_at_once}

        async def wake() -> None:
            for queue in queues:
                await (await self.store()).wake(queue)

        self.portal.submit(wake)

    # Ask

    def wait_for(self, coroutine: Callable[[], Coroutine[Any, Any, T]], *, async_name: str) -> T:
        """Run a coroutine on the portal's loop, blocking."""
        return self.portal.run(coroutine, async_name=async_name)

    def ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        """As `aask`, blocking."""
        return self.wait_for(lambda: self.aask(question), async_name="app._client.aask(…)")

    async def aask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        """Run a question to the store on the portal's loop."""
        return await self.portal.arun(lambda: self._answer(question))

    async def _answer(self, question: Callable[[Store], Awaitable[T]]) -> T:
        return await question(await self.store())

    # The store of this process

    async def store(self) -> Store:
        """The store, opened by the first call on the portal's loop, and again after a fork."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._store, self._opening, self._location = loop, None, asyncio.Lock(), None
            self._direct = None
        assert self._opening is not None
        async with self._opening:
            if self._store is None:
                store = make_store(self.settings, self.clock)
                await store.open()
                self._store, self._direct = store, self._make_direct()
            return self._store

    def _make_direct(self) -> DirectPublisher | None:
        if self.settings.broker is None:  # most programs: they import no transport
            return None
        from windlass.transport.direct import make_direct

        return make_direct(self.settings, self.clock)

    async def _where(self) -> str:
        """The location of this app's database, to compare with a caller's connection."""
        if dialect_of(self.settings.url) == "sqlite":
            # Opening a store tries a write, which would wait for the transaction that the caller has open.
            return sqlite_location(self.settings.url)
        store = await self.store()
        if self._location is None:
            self._location = await store.location()
        return self._location

    # Written out for both kinds of callers: a coroutine on the portal's loop cannot end the portal's own thread.

    def close(self) -> None:
        """Send the last wake-ups, close the connections, end the thread."""
        if self._store is not None:
            self.portal.run(self._close_store, async_name="app.aclose()")
        self.portal.close()

    async def aclose(self) -> None:
        """As `close`, awaited."""
        await self.portal.arun(self._close_store)
        await asyncio.to_thread(self.portal.close)

    async def _close_store(self) -> None:
        store, self._store = self._store, None
        direct, self._direct = self._direct, None
        if direct is not None and self._loop is asyncio.get_running_loop():
            await direct.close()
        if store is not None and self._loop is asyncio.get_running_loop():
            await store.close()


def _with_repeated(existing: Mapping[UUID, UUID], repeated: Mapping[UUID, UUID]) -> Mapping[UUID, UUID]:
    """The existing job for each refused one; a repetition within the call has the job of the first with its key."""
    return {**existing, **{id: existing.get(first, first) for id, first in repeated.items()}} if repeated else existing


class Enqueue(NamedTuple, Generic[T]):
    """An enqueue that was checked on the caller's thread and is not written yet."""

    jobs: Sequence[NewJob]
    conn: Any  # the caller's own connection, or None
    answer: Callable[[Mapping[UUID, UUID]], T]  # from what the store returned


class Enqueues(Protocol):
    """An object with methods that enqueue."""

    @property
    def _client(self) -> Client: ...

    @property
    def _noun(self) -> str: ...


Owner = TypeVar("Owner", bound=Enqueues)


def blocking_enqueue(prepare: Callable[Concatenate[Owner, P], Enqueue[T]]) -> Callable[Concatenate[Owner, P], T]:
    """The public method that writes what `prepare` checked: `enqueue = blocking_enqueue(_enqueue)`."""
    name = prepare.__name__.removeprefix("_")

    def call(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        jobs, conn, answer = prepare(self, *args, **kwargs)
        return answer(self._client.enqueue(jobs, conn, async_name=f"{self._noun}.a{name}(…)"))

    return _documented(call, prepare, name)


def awaited_enqueue(
    prepare: Callable[Concatenate[Owner, P], Enqueue[T]],
) -> Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]]:
    """The awaited form of `blocking_enqueue`: `aenqueue = awaited_enqueue(_enqueue)`."""

    async def call(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        jobs, conn, answer = prepare(self, *args, **kwargs)
        return answer(await self._client.aenqueue(jobs, conn))

    return _documented(call, prepare, f"a{prepare.__name__.removeprefix('_')}")


def _documented(call: Callable[P, T], prepare: Callable[..., object], name: str) -> Callable[P, T]:
    """Give the public method the docstring and the parameters of `prepare`, and the type of the answer as its own."""
    describe_like(call, prepare)
    rename(call, name)
    signature = inspect.signature(prepare)
    answer = str(signature.return_annotation).removeprefix("Enqueue[").removesuffix("]")
    call.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]
    return call


def gather(calls: Iterable[Call], settings: Settings) -> tuple[list[NewJob], list[Call], Any]:
    """The new jobs of many calls, or an error that names the wrong call; nothing is written yet."""
    jobs: list[NewJob] = []
    kept: list[Call] = []
    connections: list[Any] = []
    for index, (call, job) in enumerate(_with_jobs(calls, settings)):
        if job is None:
            raise EnqueueError(
                f"call {index} is {type(call).__name__}, not a call; write: app.enqueue_many(add.call(i, i) for i in …)"
            )
        jobs.append(job)
        kept.append(call)
        if call.options.conn is not None and call.options.conn not in connections:
            connections.append(call.options.conn)
    if not jobs:
        raise EnqueueError("enqueue_many() was given no calls; skip it when there is nothing to enqueue")
    if len(connections) > 1:
        raise EnqueueError("the calls name different connections; give one to all: app.enqueue_many(calls, conn=conn)")
    return jobs, kept, connections[0] if connections else None


def _with_jobs(calls: Iterable[Call], settings: Settings) -> Iterator[tuple[Call, NewJob | None]]:
    """The calls and their jobs; an error carries the index of the call that raised it."""
    if not isinstance(calls, Iterable):
        raise EnqueueError(
            f"enqueue_many() takes calls to iterate over, not {type(calls).__name__}; write a list: "
            "app.enqueue_many([add.call(…)])"
        )
    index = 0
    try:
        for call in calls:
            yield call, call.new_job(settings) if isinstance(call, Call) else None
            index += 1
    except InvalidInput as error:
        raise InvalidInput(f"call {index}: {error}; nothing was enqueued", path=error.path) from error
    except WindlassError as error:
        kind = type(error) if isinstance(error, EnqueueError) else EnqueueError
        raise kind(f"call {index}: {error}; nothing was enqueued") from error
    except Exception as error:
        error.add_note(f"raised by call {index} of enqueue_many(); nothing was enqueued")
        raise


def _close(client: weakref.ref[Client]) -> None:
    """At exit: send the last wake-ups; a hanging database must not keep the program alive."""
    instance = client()
    if instance is not None:
        try:
            instance.close()
        except Exception:
            pass
