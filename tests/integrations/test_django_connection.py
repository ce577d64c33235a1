"""An enqueue through Django's own connection commits with the rows of its atomic block, and rolls back with them."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from windlass.errors import UnusableConnection

from .rig import Database


def test_a_job_enqueued_in_an_atomic_block_exists_once_it_commits(project: Database) -> None:
    from django.db import connection, transaction
    from shop.jobs import thank
    from shop.models import Order

    with transaction.atomic():
        Order.objects.create(email="a@example.org")
        job = thank.options(conn=connection).enqueue("a@example.org")
        assert project.jobs() == 0

    assert project.jobs() == 1
    assert job.record().arguments() == {"email": "a@example.org"}


def test_a_job_goes_with_the_atomic_block_that_rolls_back(project: Database) -> None:
    from django.db import connections, transaction
    from shop.jobs import thank
    from shop.models import Order

    with transaction.atomic():
        Order.objects.create(email="a@example.org")
        thank.options(conn=connections["default"]).enqueue("a@example.org")
        transaction.set_rollback(True)

    assert project.jobs() == 0
    assert Order.objects.count() == 0


def test_a_job_goes_with_its_savepoint_and_the_outer_block_keeps_its_own(project: Database) -> None:
    from django.db import connection, transaction
    from shop.jobs import thank

    with transaction.atomic():
        kept = thank.options(conn=connection).enqueue("kept")
        with transaction.atomic():
            thank.options(conn=connection).enqueue("lost")
            transaction.set_rollback(True)

    assert project.jobs() == 1
    assert kept.record().arguments() == {"email": "kept"}


def test_workers_are_woken_after_the_commit_and_not_after_a_rollback(project: Database) -> None:
    from django.db import connection, transaction
    from shop.jobs import thank

    from windlass.integrations.django import app

    with patch.object(app._client, "_wake_soon") as wake:
        with transaction.atomic():
            thank.options(conn=connection).enqueue("a@example.org")
            assert not wake.called
        assert wake.call_count == 1
        with transaction.atomic():
            thank.options(conn=connection).enqueue("b@example.org")
            transaction.set_rollback(True)
        assert wake.call_count == 1


def test_a_key_commits_and_rolls_back_with_its_block_and_a_refused_job_wakes_nobody(project: Database) -> None:
    from django.db import connection, transaction
    from shop.jobs import thank

    from windlass.integrations.django import app

    keyed = thank.options(conn=connection, key="order % 7", idempotency_key="request-7")
    with transaction.atomic():
        assert not keyed.enqueue("a@example.org").existing
        transaction.set_rollback(True)
    with patch.object(app._client, "_wake_soon") as wake:
        with transaction.atomic():
            first = keyed.enqueue("a@example.org")
        with transaction.atomic():
            second = keyed.enqueue("a@example.org")
        assert wake.call_count == 1

    assert (first.existing, second.existing, second.id) == (False, True, first.id)
    assert project.jobs() == 1


def test_many_jobs_go_through_one_block(project: Database) -> None:
    from django.db import connection, transaction
    from shop.jobs import thank

    from windlass.integrations.django import app

    with transaction.atomic():
        app.enqueue_many((thank.call(f"{n}@example.org") for n in range(50)), conn=connection)

    assert project.jobs() == 50


def test_outside_a_block_every_statement_commits_so_the_connection_is_refused(project: Database) -> None:
    from django.db import connection
    from shop.jobs import thank

    with pytest.raises(UnusableConnection, match=r"with transaction\.atomic\(\)"):
        thank.options(conn=connection).enqueue("a@example.org")

    assert project.jobs() == 0


def test_a_transaction_by_hand_carries_a_job_while_it_is_open(project: Database) -> None:
    from django.db import connection, transaction
    from shop.jobs import thank

    transaction.set_autocommit(False)
    try:
        for _ in range(2):
            thank.options(conn=connection).enqueue("lost")
            transaction.rollback()
        kept = thank.options(conn=connection).enqueue("kept")
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert project.jobs() == 1
    assert kept.record().arguments() == {"email": "kept"}


def test_a_block_that_has_to_roll_back_is_refused(project: Database) -> None:
    from django.db import IntegrityError, connection, transaction
    from shop.jobs import thank
    from shop.models import Order

    with transaction.atomic():
        one = Order.objects.create(email="a@example.org")
        with pytest.raises(IntegrityError), transaction.atomic(savepoint=False):
            Order.objects.create(id=one.id, email="b@example.org")
        with pytest.raises(UnusableConnection, match="has to roll back"):
            thank.options(conn=connection).enqueue("a@example.org")

    assert project.jobs() == 0


async def test_on_an_event_loop_the_connection_is_refused_with_the_way_out(project: Database) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connection, transaction
    from shop.jobs import thank

    with pytest.raises(UnusableConnection, match="sync_to_async"):
        await thank.options(conn=connection).aenqueue("a@example.org")

    def enqueue() -> None:
        with transaction.atomic():
            thank.options(conn=connection).enqueue("a@example.org")
        connection.close()

    await sync_to_async(enqueue)()
    assert project.jobs() == 1


def test_another_proxy_of_django_is_no_connection(project: Database) -> None:
    from django.core.cache import cache
    from shop.jobs import thank

    with pytest.raises(UnusableConnection, match="not for a database"):
        thank.options(conn=cache).enqueue("a@example.org")


def test_a_connection_to_another_database_is_refused(project: Database, tmp_path: Any) -> None:
    from django.db import connection, transaction

    from windlass import Windlass

    other = Windlass(f"sqlite:///{tmp_path / 'other.db'}")

    @other.job
    def elsewhere() -> None: ...

    other.migrate()
    try:
        with transaction.atomic(), pytest.raises(UnusableConnection, match=r"another database|postgres connection"):
            elsewhere.options(conn=connection).enqueue()
    finally:
        other.close()


def test_views_enqueue_with_their_order(project: Database) -> None:
    from django.test import Client
    from shop.models import Order

    assert Client().get("/order/a@example.org").status_code == 200
    assert Client().get("/order/b@example.org?no").status_code == 200

    assert [order.email for order in Order.objects.all()] == ["a@example.org"]
    assert project.jobs() == 1


def test_a_handler_begins_and_ends_without_old_connections(project: Database) -> None:
    from django.db import connection
    from shop.models import Order

    from windlass.integrations.django.instance import fresh_connections

    Order.objects.count()
    assert connection.connection is not None

    with fresh_connections():
        assert connection.connection is None
        Order.objects.count()

    assert connection.connection is None
