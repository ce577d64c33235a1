"""The project's own tests, for `manage.py test`."""

from __future__ import annotations

from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from shop.jobs import thank
from shop.tasks import add
from windlass.integrations.django import app


class InATransaction(TestCase):  # type: ignore[misc]  # Django has no types
    def test_enqueue(self) -> None:
        job = thank.options(conn=connection).enqueue("a@example.org")
        result = add.enqueue(1)

        assert add.get_result(result.id).status == "READY"
        assert job.id

    def test_nothing_is_left_of_it(self) -> None:
        assert sum(app.counts().values()) == 0


class WithCommits(TransactionTestCase):  # type: ignore[misc]  # Django has no types
    def test_enqueue(self) -> None:
        with transaction.atomic():
            job = thank.options(conn=connection).enqueue("a@example.org")
        assert job.status() == "queued"
        assert "test" in app.settings.url
        job.cancel()
