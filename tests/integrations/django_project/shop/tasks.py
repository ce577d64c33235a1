"""Tasks of the shop, with Django's own decorator or the backport's."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from shop.models import Order
from windlass import Snooze

if settings.BUILT_IN:
    from django.tasks import task
else:
    from django_tasks import task


@task()  # type: ignore[untyped-decorator,unused-ignore]
def add(a: int, b: int = 1) -> int:
    return a + b


@task(priority=5, queue_name="mail")  # type: ignore[untyped-decorator,unused-ignore]
def thank(email: str) -> int:
    return int(Order.objects.filter(email=email).update(thanked=True))


@task()  # type: ignore[untyped-decorator,unused-ignore]
async def count() -> int:
    return int(await Order.objects.acount())


@task(takes_context=True)  # type: ignore[untyped-decorator,unused-ignore]
def look(context: Any, word: str) -> dict[str, Any]:
    result = context.task_result
    return {"attempt": context.attempt, "id": result.id, "word": word, "status": result.status, "args": result.args}


class OutOfRope(Exception):
    pass


@task()  # type: ignore[untyped-decorator,unused-ignore]
def fail(word: str = "") -> None:
    raise OutOfRope(word)


@task(backend="stubborn")  # type: ignore[untyped-decorator,unused-ignore]
def fail_twice() -> None:
    raise ValueError("again")


@task()  # type: ignore[untyped-decorator,unused-ignore]
def unserialisable() -> object:
    return object()


@task()  # type: ignore[untyped-decorator,unused-ignore]
def snooze() -> None:
    raise Snooze("1h")


@task()  # type: ignore[untyped-decorator,unused-ignore]
def snooze_by_return() -> Snooze:
    return Snooze("1h")


def undeclared() -> None:
    raise AssertionError("only tasks are run")
