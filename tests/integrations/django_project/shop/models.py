from __future__ import annotations

from django.db import models


class Order(models.Model):  # type: ignore[misc]  # Django has no types
    email = models.CharField(max_length=100)
    thanked = models.BooleanField(default=False)
