"""FastAPI and Starlette: enqueue only, a worker inside the server, and jobs in the request's own session."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, assert_type
from uuid import UUID

import pytest
import sqlalchemy as sa
from fastapi import Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.testclient import TestClient
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from starlette.applications import Starlette

from windlass import JobType, Windlass
from windlass.errors import ConfigError, SchemaMissing
from windlass.integrations.fastapi import Jobs, client
from windlass.integrations.lifespan import Lifespan

from .rig import PATIENCE, Database


@pytest.fixture
def app(database: Database) -> Windlass:
    return database.app()


@pytest.fixture
def add(app: Windlass) -> JobType[..., int]:
    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    return add


def begin(request: Request) -> Iterator[Session]:
    with Session(request.app.state.engine) as session, session.begin():
        yield session


async def abegin(request: Request) -> AsyncIterator[AsyncSession]:
    async with AsyncSession(request.app.state.engine) as session, session.begin():
        yield session


Transaction = Annotated[Session, Depends(begin)]
AsyncTransaction = Annotated[AsyncSession, Depends(abegin)]


def serve(api: FastAPI, add: JobType[..., int]) -> FastAPI:
    @api.post("/add")
    async def post(a: int, b: int) -> str:
        return str((await add.aenqueue(a, b)).id)

    @api.post("/blocking")
    def blocking(a: int, b: int) -> str:
        return str(add.enqueue(a, b).id)

    @api.get("/job/{id}")
    async def get(id: UUID, jobs: Jobs) -> str:
        return str(await (await jobs.afind(id)).astatus())

    @api.get("/result/{id}")
    async def result(id: UUID, jobs: Jobs) -> Any:
        return await (await jobs.afind(id)).aresult(timeout=PATIENCE)

    return api


def is_open(app: Windlass) -> bool:
    return app._client._store is not None


def test_a_server_that_only_enqueues_opens_nothing_until_it_does(
    app: Windlass, add: JobType[..., int], database: Database
) -> None:
    api = serve(FastAPI(lifespan=app.lifespan), add)

    with TestClient(api) as http:
        assert not is_open(app)
        one, two = http.post("/add?a=2&b=3").json(), http.post("/blocking?a=2&b=3").json()
        assert http.get(f"/job/{one}").json() == http.get(f"/job/{two}").json() == "queued"
        assert is_open(app)

    assert not is_open(app)
    assert app.workers() == []
    assert database.jobs() == 2


def test_a_worker_inside_the_server_runs_its_jobs_and_leaves_with_it(app: Windlass, add: JobType[..., int]) -> None:
    api = serve(FastAPI(lifespan=app.lifespan(worker=True, concurrency=3)), add)

    for _ in range(2):  # a lifespan can begin again
        with TestClient(api) as http:
            id = http.post("/add?a=2&b=3").json()
            assert http.get(f"/result/{id}").json() == 5
            assert [worker.concurrency for worker in app.workers()] == [3]
        assert app.workers() == []


def test_the_caller_s_own_lifespan_is_there_before_the_first_job_and_after_the_last(app: Windlass) -> None:
    steps: list[str] = []

    @app.job
    async def use() -> str:
        return "|".join(steps)

    @asynccontextmanager
    async def mine(api: FastAPI) -> AsyncIterator[dict[str, str]]:
        steps.append("open")
        yield {"engine": "mine"}
        workers = await app.aworkers()  # the client is still there
        steps.append(f"closed after {len(workers)} workers")

    api = FastAPI(lifespan=app.lifespan(worker=True, also=mine))

    @api.get("/")
    async def state(request: Request) -> Any:
        job = await use.aenqueue()
        return [request.state.engine, await job.aresult(timeout=PATIENCE)]

    with TestClient(api) as http:
        assert http.get("/").json() == ["mine", "open"]

    assert steps == ["open", "closed after 0 workers"]


def test_options_of_a_worker_need_one(app: Windlass) -> None:
    with pytest.raises(ConfigError, match="worker=True"):
        app.lifespan(concurrency=3)


def test_a_server_whose_worker_cannot_start_does_not_start(tmp_path: Any) -> None:
    app = Windlass(f"sqlite:///{tmp_path / 'empty.db'}")

    @app.job
    def nothing() -> None: ...

    with pytest.raises(SchemaMissing), TestClient(FastAPI(lifespan=app.lifespan(worker=True))):
        pass


def test_a_server_can_migrate_before_its_worker_starts_and_logs_the_start(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a database without a schema, when the server starts, then it migrates, and logs its worker at INFO."""
    caplog.set_level(logging.INFO, "windlass")
    app = Windlass(f"sqlite:///{tmp_path / 'empty.db'}")

    @app.job
    def add(a: int, b: int) -> int:
        return a + b

    api = serve(FastAPI(lifespan=app.lifespan(worker=True)(migrate=True)), add)
    for _ in range(2):  # the second start finds the schema
        with TestClient(api) as http:
            assert http.get(f"/result/{http.post('/add?a=2&b=3').json()}").json() == 5

    started = [line for line in caplog.records if " started as " in line.getMessage()]
    assert [(line.name, line.levelname) for line in started] == [("windlass", "INFO")] * 2


def test_starlette_and_routers_take_it_too(app: Windlass, add: JobType[..., int]) -> None:
    with TestClient(Starlette(lifespan=app.lifespan(worker=True, queues=["default"]))):
        assert [worker.queues for worker in app.workers()] == [("default",)]


def test_the_dependency_finds_the_app_also_for_web_sockets_and_can_be_replaced(app: Windlass) -> None:
    api = FastAPI(lifespan=app.lifespan)

    @api.websocket("/ws")
    async def ws(socket: WebSocket, jobs: Jobs) -> None:
        await socket.accept()
        await socket.send_text(jobs.settings.url)
        await socket.close()

    @api.get("/")
    async def get(jobs: Jobs) -> str:
        return jobs.settings.url

    with TestClient(api) as http:
        with http.websocket_connect("/ws") as socket:
            assert socket.receive_text() == app.settings.url
        api.dependency_overrides[client] = lambda: Windlass("sqlite:///other.db")
        assert http.get("/").json() == "sqlite:///other.db"


def test_without_the_lifespan_the_dependency_raises_with_what_to_write() -> None:
    api = FastAPI()

    @api.get("/")
    async def get(jobs: Jobs) -> None: ...

    with pytest.raises(ConfigError, match=r"FastAPI\(lifespan=app\.lifespan\)"):
        TestClient(api).get("/")


def test_a_job_in_the_request_s_session_commits_and_rolls_back_with_it(
    app: Windlass, add: JobType[..., int], database: Database
) -> None:
    engine = sa.create_engine(database.alchemy())
    database.run("CREATE TABLE orders (n int)")

    api = FastAPI(lifespan=app.lifespan)
    api.state.engine = engine

    @api.post("/order")
    def order(session: Transaction, refuse: bool = False) -> str:
        job = add.options(conn=session).enqueue(1, 2)
        session.execute(sa.text("INSERT INTO orders VALUES (1)"))
        if refuse:
            raise HTTPException(409)
        return str(job.id)

    with TestClient(api) as http:
        assert http.post("/order?refuse=true").status_code == 409
        assert (database.jobs(), database.run("SELECT * FROM orders")) == (0, [])
        assert http.post("/order").status_code == 200

    assert (database.jobs(), database.run("SELECT * FROM orders")) == (1, [(1,)])
    engine.dispose()


def test_a_job_in_the_request_s_asynchronous_session(app: Windlass, add: JobType[..., int], database: Database) -> None:
    engine = create_async_engine(database.alchemy(asynchronous=True), poolclass=sa.NullPool)

    api = FastAPI(lifespan=app.lifespan)
    api.state.engine = engine

    @api.post("/order")
    async def order(session: AsyncTransaction, refuse: bool = False) -> str:
        job = await add.options(conn=session).aenqueue(1, 2)
        if refuse:
            raise HTTPException(409)
        return str(job.id)

    with TestClient(api) as http:
        assert http.post("/order?refuse=true").status_code == 409
        assert database.jobs() == 0
        assert http.post("/order").status_code == 200

    assert database.jobs() == 1


def test_the_start_of_a_worker_is_logged_beside_the_server_s_own(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a server that sets up its own logger only, as uvicorn does, when it starts, then it shows the worker."""
    caplog.set_level(logging.WARNING, "windlass")
    caplog.set_level(logging.INFO, "uvicorn.error")

    @app.job
    def nothing() -> None: ...

    with TestClient(FastAPI(lifespan=app.lifespan(worker=True))):
        pass

    (line,) = [line for line in caplog.records if "started" in line.getMessage()]
    assert (line.name, line.levelname) == ("uvicorn.error", "INFO")
    assert line.getMessage().startswith("windlass worker ")


def test_a_worker_that_ends_is_logged(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    @app.job
    def nothing() -> None: ...

    made = []
    worker = app.worker

    def spy(**options: Any) -> Any:
        made.append(worker(**options))
        return made[-1]

    app.worker = spy  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR), TestClient(FastAPI(lifespan=app.lifespan(worker=True))) as http:
        made[0]._failure = RuntimeError("no schema any more")
        made[0].stop()
        http.get("/")
        http.get("/")

    assert "restart the server" in caplog.text


def test_types_of_the_lifespan() -> None:
    @asynccontextmanager
    async def mine(api: FastAPI) -> AsyncIterator[dict[str, str]]:
        yield {}

    app = Windlass("sqlite:///never.db")
    assert_type(app.lifespan, Lifespan[None])
    assert_type(app.lifespan(worker=True), Lifespan[None])
    assert_type(app.lifespan(also=mine), Lifespan[dict[str, str]])
    FastAPI(lifespan=app.lifespan)
    FastAPI(lifespan=app.lifespan(also=mine))
