"""The one `Windlass` of a Django project. It uses the project's current settings: a test run changes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections
from django.db.transaction import TransactionManagementError

from windlass.app import Windlass
from windlass.client import Client
from windlass.config import Settings
from windlass.integrations.django.config import Configuration
from windlass.integrations.django.database import url_of
from windlass.integrations.django.task_job import add_job_type
from windlass.integrations.django.task_registry import TASK_REGISTRY
from windlass.integrations.wrapping_registry import WrappingRegistry
from windlass.model.job import NewJob
from windlass.store import dialect_of
from windlass.store.protocol import Store
from windlass.store.sqlite.connections.file import locate

T = TypeVar("T")

PROGRAM = "windlass.integrations.django.program:app"
"""The module by which a worker's processes find the project: it sets Django up."""


@cache
def get_app() -> DjangoWindlass:
    """The project's app. It is made once, when the first job is declared or enqueued."""
    app = DjangoWindlass(Configuration.read())
    TASK_REGISTRY.make_job_types(lambda path: add_job_type(app._registry, path))
    return app


class DjangoWindlass(Windlass):
    """`from windlass.integrations.django import app`"""

    _settings: Settings

    def __init__(self, configuration: Configuration) -> None:
        self._given = configuration
        super().__init__(_url(configuration), **configuration.settings)
        self._client = ProjectClient(self)
        self._registry = WrappingRegistry(
            self._registry, around=fresh_connections, around_coroutine=async_fresh_connections
        )
        self._program = PROGRAM

    @property
    def settings(self) -> Settings:
        """The settings, with the URL of the database that the project uses now: a test run uses another one."""
        url = _url(self._given)
        if url != self._settings.url:
            self._settings = self._settings.with_(url=url)
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings

    def test_url(self) -> str:
        """Where `windlass.testing.harness(app)` runs the project's jobs: in Django's own test database."""
        if not hasattr(mail, "outbox"):
            raise ImproperlyConfigured(
                "harness(app) deletes every job of the database that it uses, and this is no test run of Django; run "
                "it with manage.py test, or with pytest-django"
            )
        if self._given.database is not None and connections[self._given.database].in_atomic_block:
            raise TransactionManagementError(
                "harness(app) is inside the transaction of a TestCase, where no worker sees the jobs; use "
                "TransactionTestCase, or @pytest.mark.django_db(transaction=True)"
            )
        return self.settings.url


def _url(configuration: Configuration) -> str:
    if configuration.url is not None:
        return configuration.url
    assert configuration.database is not None, "without a URL there is an alias"
    return url_of(configuration.database)


class ProjectClient(Client):
    """A client that uses the store at the app's current URL."""

    def __init__(self, app: DjangoWindlass) -> None:
        self._app = app
        self._opened: str | None = None
        super().__init__(app.settings, app.clock, app._registry.instruments)

    @property
    def settings(self) -> Settings:
        return self._app.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        pass

    async def store(self) -> Store:
        url = self.settings.url
        if self._opened != url:
            await self._close_store()
            self._opened, self._location = url, None
        return await super().store()

    async def _where(self) -> str:
        """The location of a SQLite file is its path. To open the store would wait for the caller's own transaction."""
        url = self.settings.url
        return f"sqlite:{locate(url)}" if dialect_of(url) == "sqlite" else await super()._where()

    # A test run keeps no connection: the runner drops its PostgreSQL database, and an open connection prevents that.

    def enqueue(self, jobs: Sequence[NewJob], conn: Any, *, async_name: str) -> Mapping[UUID, UUID]:
        existing = super().enqueue(jobs, conn, async_name=async_name)
        if self._is_test_database():
            self.portal.run(self._close_store, async_name=async_name)
        return existing

    async def aenqueue(self, jobs: Sequence[NewJob], conn: Any) -> Mapping[UUID, UUID]:
        existing = await super().aenqueue(jobs, conn)
        if self._is_test_database():
            await self.portal.arun(self._close_store)
        return existing

    async def _answer(self, question: Callable[[Store], Awaitable[T]]) -> T:
        try:
            return await super()._answer(question)
        finally:
            if self._is_test_database():
                await self._close_store()

    def _wake_soon(self, jobs: Sequence[NewJob]) -> None:
        if not self._is_test_database():
            super()._wake_soon(jobs)

    def _is_test_database(self) -> bool:
        """Whether this is a PostgreSQL database of a test run: Django's test environment adds `mail.outbox`."""
        return hasattr(mail, "outbox") and dialect_of(self.settings.url) == "postgres"


@contextmanager
def fresh_connections() -> Iterator[None]:
    """Close old connections, as Django does around a request: one that the server has closed must not fail a job."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@asynccontextmanager
async def async_fresh_connections() -> AsyncIterator[None]:
    """The same for a coroutine. Its queries run on asgiref's thread."""
    close = sync_to_async(close_old_connections)
    await close()
    try:
        yield
    finally:
        await close()
