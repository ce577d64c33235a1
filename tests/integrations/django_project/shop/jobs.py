"""Jobs of the shop."""

from __future__ import annotations

from django.db import connection

from shop.models import Order
from windlass.integrations.django import app


@app.job
def thank(email: str) -> int:
    return int(Order.objects.filter(email=email).update(thanked=True))


@app.job
async def count() -> int:
    return int(await Order.objects.acount())


@app.job(isolation="process")
def apart() -> int:
    return int(Order.objects.count())


@app.job
def fresh() -> bool:
    """Whether no connection was left open by the job before on this thread."""
    unopened = connection.connection is None
    Order.objects.count()
    return unopened
