from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.http import HttpResponse, JsonResponse

from shop.jobs import thank
from shop.models import Order
from shop.tasks import add


def order(request: Any, email: str) -> HttpResponse:
    """The order and its job, or neither."""
    with transaction.atomic():
        Order.objects.create(email=email)
        job = thank.options(conn=connection).enqueue(email)
        if "no" in request.GET:
            transaction.set_rollback(True)
    return JsonResponse({"job": str(job.id)})


async def ask(request: Any) -> HttpResponse:
    result = await add.aenqueue(2, b=3)
    return JsonResponse({"task": result.id})
