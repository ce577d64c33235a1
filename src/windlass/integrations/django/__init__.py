"""Django: jobs on the project's own database.

    INSTALLED_APPS += ["windlass.integrations.django"]
    WINDLASS = {"CONCURRENCY": 20}                      # all of it may be left out

    # shop/jobs.py
    from windlass.integrations.django import app

    @app.job
    def send(to: str) -> None: ...

`app` is made when it is first asked for, because the project's settings have to be there.
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
    from windlass.integrations.django.instance import the_app

    return the_app()
