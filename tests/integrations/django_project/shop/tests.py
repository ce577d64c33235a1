"""The project's own tests, for `manage.py test`."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from shop.jobs import thank
from shop.models import Order
from shop.tasks import add, count, fail
from shop.tasks import thank as thank_by_task
from windlass.integrations.django import app
from windlass.testing import harness

TASKS = "django.tasks" if settings.BUILT_IN else "django_tasks"


class InATransaction(TestCase):  # type: ignore[misc]  # Django has no types
    def test_enqueue(self) -> None:
        job = thank.options(conn=connection).enqueue("a@example.org")
        result = add.enqueue(1)

        assert add.get_result(result.id) == result
        assert job.id

    def test_nothing_is_left_of_it(self) -> None:
        assert sum(app.counts().values()) == 0

    def test_no_worker_sees_its_jobs(self) -> None:
        with pytest.raises(transaction.TransactionManagementError, match="TransactionTestCase"):
            harness(app)

    def test_django_s_own_backends(self) -> None:
        immediate = {"BACKEND": f"{TASKS}.backends.immediate.ImmediateBackend", "QUEUES": []}
        with override_settings(TASKS={"default": immediate}):
            assert thank_by_task.enqueue("a@example.org").return_value == 0  # of the queue "mail"
        with override_settings(TASKS={"default": {"BACKEND": f"{TASKS}.backends.dummy.DummyBackend"}}):
            assert add.enqueue(2).status == "READY"
            assert len(add.get_backend().results) == 1
        assert sum(app.counts().values()) == 0


class WithCommits(TransactionTestCase):  # type: ignore[misc]  # Django has no types
    def test_enqueue(self) -> None:
        with transaction.atomic():
            job = thank.options(conn=connection).enqueue("a@example.org")
        assert job.status() == "queued"
        assert "test" in app.settings.url
        job.cancel()


class WithAWorker(TransactionTestCase):  # type: ignore[misc]  # Django has no types
    def setUp(self) -> None:
        self.windlass = self.enterContext(harness(app))

    def test_drain_runs_jobs_and_tasks_on_the_test_database(self) -> None:
        with transaction.atomic():
            Order.objects.create(email="a@example.org")
            thank.options(conn=connection).enqueue("a@example.org")
        result, orders, failing = add.enqueue(2, b=3), count.enqueue(), fail.enqueue("frayed")

        self.windlass.assert_enqueued("shop.tasks.add", args=[2])
        ran = self.windlass.drain()

        assert [attempt.type for attempt in ran] == ["thank", "shop.tasks.add", "shop.tasks.count", "shop.tasks.fail"]
        for each in (result, orders, failing):
            each.refresh()
        assert (result.return_value, orders.return_value, failing.status) == (5, 1, "FAILED")
        assert Order.objects.get().thanked

    def test_the_clock_is_the_test_s(self) -> None:
        result = add.using(run_after=self.windlass.clock.now().replace(year=2100)).enqueue(1)
        assert self.windlass.drain() == []

        self.windlass.clock.advance_to(result.task.run_after)
        self.windlass.drain()
        result.refresh()

        assert result.return_value == 2
        assert result.enqueued_at < result.started_at <= result.finished_at

    def test_every_test_begins_without_jobs(self) -> None:
        assert self.windlass.jobs() == []

    async def test_asynchronous_tests_drain_too(self) -> None:
        result = await add.aenqueue(1)
        await self.windlass.adrain()
        await result.arefresh()

        assert result.return_value == 2
