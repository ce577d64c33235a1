"""The integration with Django: jobs in the project's own database, and backends for `django.tasks`.

    INSTALLED_APPS += ["windlass.integrations.django"]
    WINDLASS = {"CONCURRENCY": 20}                      # optional

    # shop/jobs.py
    from windlass.integrations.django import app

    @app.job
    def send(to: str) -> None: ...

`app` is made when it is first used, because it needs the project's settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.integrations.django.instance import DjangoWindlass

    app: DjangoWindlass

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from windlass.integrations.django.instance import get_app

    return get_app()
