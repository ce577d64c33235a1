"""The routes of jobs: enqueue, list, read, wait, change. A method of the service checks the caller and does it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Path, Query, Request
from starlette.responses import Response

from windlass.client import incoming_trace
from windlass.declare.named_calls import NamedCall
from windlass.documents import Document
from windlass.errors import EnqueueError
from windlass.methods.reads import LARGEST_PAGE, PAGE
from windlass.model.state import Verb
from windlass.model.trace import read_traceparent
from windlass.web.answers import answer
from windlass.web.live.bulk import progress_document
from windlass.web.live.events import EventStream, disconnected
from windlass.web.routes.live import BulkEvents
from windlass.web.routing import WITH_BODY, Entered, Visit, job_url, make_routes, problems
from windlass.web.schemas import jobs as schemas

jobs_router = make_routes("jobs")

LONGEST_WAIT = 60.0  # seconds of one long poll: proxies close a request that is idle for longer
KEY = Header(alias="Idempotency-Key", min_length=1, max_length=500, description="repeats of the request make no job")

Id = Annotated[UUID, Path(description="the id of a job")]
IdempotencyKey = Annotated[str | None, KEY]
Trace = Annotated[str | None, Header(alias="traceparent", description="the W3C trace that the jobs continue")]
Filter = Annotated[str, Query(max_length=2_000, description="as in `windlass jobs list`: queue:mail state:dead")]


@jobs_router.post(
    "/jobs",
    status_code=202,
    response_model=schemas.Accepted,
    responses=problems(404, 409, *WITH_BODY),
    summary="Enqueue a job",
)
async def enqueue_job(
    body: schemas.NewJobBody, visit: Entered, request: Request, key: IdempotencyKey = None, trace: Trace = None
) -> Response:
    """Stores a job, and answers after the commit. `Location` is the job's address."""
    (accepted,) = await _enqueue(visit, [body], key, trace)
    document = _with_url(request, accepted)
    return answer(document, 202, {"location": document["url"]})


@jobs_router.post(
    "/jobs/batch",
    status_code=202,
    response_model=schemas.AcceptedJobs,
    responses=problems(404, 409, *WITH_BODY),
    summary="Enqueue many jobs",
)
async def enqueue_jobs(
    body: schemas.NewJobsBody, visit: Entered, request: Request, key: IdempotencyKey = None, trace: Trace = None
) -> Response:
    """Stores up to 1,000 jobs in one transaction: all of them, or none."""
    accepted = await _enqueue(visit, body.jobs, key, trace)
    return answer({"jobs": [_with_url(request, each) for each in accepted]}, 202)


@jobs_router.get("/jobs", response_model=schemas.JobPage, summary="List jobs")
async def list_jobs(
    visit: Entered,
    filter: Filter = "",
    count: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = PAGE,
    below: Annotated[UUID | None, Query(description="the `next` of the page before")] = None,
) -> Response:
    """The jobs that match, newest first."""
    return answer(await visit.service.jobs(visit.caller, filter, count, below))


@jobs_router.post(
    "/jobs/bulk",
    response_model=schemas.BulkAnswer,
    responses=problems(409, *WITH_BODY),
    summary="Change every job that matches",
)
async def change_jobs(body: schemas.BulkBody, visit: Entered, request: Request) -> Response:
    """Counts first, with `dry_run`; then changes exactly the jobs that match, each by its own conditional write.

    With `Accept: text/event-stream` the answer is a stream of `progress` events, the last of which is `done`. A caller
    that closes the connection stops the action; what was changed stays changed.
    """
    chosen = await visit.service.choose(visit.caller, body.verb, body.filter, body.expected)
    start: Document = {
        "verb": body.verb,
        "filter": chosen.filter,
        "dry_run": body.dry_run,
        **progress_document(chosen.count),
        "types": chosen.by_type(),
        "states": chosen.by_state(),
        "done": False,
    }
    if body.dry_run:
        return answer(start)
    progress = BulkEvents(start, await visit.service.begin_bulk(visit.caller, chosen))
    if "text/event-stream" in request.headers.get("accept", ""):
        return EventStream(progress.events())
    return answer(await progress.finish(request))


@jobs_router.get("/jobs/{id:uuid}", response_model=schemas.JobDocument, responses=problems(404), summary="Read a job")
async def read_job(id: Id, visit: Entered, largest: Annotated[int | None, Query(ge=0)] = None) -> Response:
    """A job with its attempts. Values of secret names are "[redacted]".

    With `largest`, an input or output of more characters is null, and `left_out` has its size.
    """
    return answer(await visit.service.job(visit.caller, id, largest))


@jobs_router.get(
    "/jobs/{id:uuid}/details",
    response_model=schemas.JobDetailsDocument,
    responses=problems(404),
    summary="Read why it waits",
)
async def read_details(id: Id, visit: Entered) -> Response:
    """Why a job does not start, its links to other jobs, its steps, its signals and its audit."""
    return answer(await visit.service.details(visit.caller, id))


@jobs_router.get(
    "/jobs/{id:uuid}/result",
    response_model=schemas.JobResult,
    responses=problems(404),
    summary="Wait for its end",
)
async def read_result(
    id: Id,
    visit: Entered,
    request: Request,
    timeout: Annotated[float, Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False)] = 0,
) -> Response:
    """Waits for up to `timeout` seconds. `ended` is false when the job goes on: ask again."""
    waiting = asyncio.ensure_future(visit.service.result(visit.caller, id, timeout))
    gone = asyncio.ensure_future(disconnected(request.receive))
    try:  # uvicorn does not cancel a request whose caller has gone: it would be waited for to its end
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return answer(waiting.result())
        gone.result()  # raises where a body was announced and did not arrive
        return Response(status_code=204)  # which no caller reads
    finally:
        waiting.cancel()
        gone.cancel()


@jobs_router.post(
    "/jobs/{id:uuid}/reveal", response_model=schemas.JobDocument, responses=problems(404), summary="Read hidden values"
)
async def reveal_job(id: Id, visit: Entered) -> Response:
    """A job with its hidden values, for admins. The audit has a row before they are shown."""
    return answer(await visit.service.reveal(visit.caller, id))


CHANGES = problems(404, 409)


VERBS = {
    Verb.CANCEL: ("Cancel a job", "A running job is asked to stop: its state stays `running` until it has."),
    Verb.RETRY: ("Retry a job now", "A failed job is tried again at once, without a wait for its next retry."),
    Verb.REPLAY: ("Start it over", "A dead job starts from its beginning, with all its attempts."),
    Verb.RESUME: ("Resume it", "A cancelled job goes back to its queue."),
    Verb.DISCARD: ("Delete a job", "Deletes a dead job for good; the audit keeps a row of it."),
}


def _add_verb(verb: Verb, summary: str, description: str) -> None:
    async def change_job(id: Id, visit: Entered) -> Response:
        return answer(await visit.service.operate(visit.caller, id, verb))

    texts = {"name": f"{verb}_job", "summary": summary, "description": description}
    path = f"/jobs/{{id:uuid}}/{verb}"
    jobs_router.post(path, response_model=schemas.Changed, responses=CHANGES, **texts)(change_job)  # type: ignore[arg-type]


for each, (title, text) in VERBS.items():
    _add_verb(each, title, text)


@jobs_router.post(
    "/jobs/{id:uuid}/rerun",
    status_code=202,
    response_model=schemas.Accepted,
    responses=problems(404, 409, *WITH_BODY),
    summary="Run a job again as a new one",
)
async def rerun_job(id: Id, body: schemas.RerunBody, visit: Entered, request: Request) -> Response:
    """Perhaps with another input. `discard` deletes the dead original in the same transaction."""
    made = await visit.service.rerun(visit.caller, id, body.input, discard=body.discard)
    document = _with_url(request, made)
    return answer(document, 202, {"location": document["url"]})


@jobs_router.post(
    "/jobs/{id:uuid}/signal",
    response_model=schemas.Sent,
    responses=problems(404, 409, *WITH_BODY),
    summary="Signal it",
)
async def send_signal(id: Id, body: schemas.SignalBody, visit: Entered) -> Response:
    """The job's `ctx.wait_signal(name)` returns the value."""
    return answer(await visit.service.signal(visit.caller, id, body.name, body.value))


async def _enqueue(
    visit: Visit, jobs: Sequence[schemas.NewJobBody], key: str | None, trace: str | None
) -> list[Document]:
    parsed = read_traceparent(trace)  # a header in another form is left out: it is no reason to refuse a job
    before = incoming_trace.set(None if parsed is None else str(parsed))
    try:
        return await visit.service.enqueue(visit.caller, [_call(job) for job in jobs], key)
    except EnqueueError as error:
        if error.path is not None:  # as the body has it: options stand beside the type
            error.path = error.path.replace("$[", "$.jobs[", 1).replace(".options", "", 1)
        raise
    finally:
        incoming_trace.reset(before)


def _call(body: schemas.NewJobBody) -> NamedCall:
    options: dict[str, Any] = body.model_dump(exclude={"type", "input"}, exclude_none=True)
    return NamedCall(body.type, body.input, options)


def _with_url(request: Request, document: Document) -> Document:
    return {**document, "url": job_url(request, document["id"])}
