"""Tasks in a module that a worker imports only when WINDLASS["MODULES"] names it."""

from __future__ import annotations

from django.conf import settings

if settings.BUILT_IN:
    from django.tasks import task
else:
    from django_tasks import task


@task()  # type: ignore[untyped-decorator,unused-ignore]
def post(to: str) -> str:
    return f"posted to {to}"
