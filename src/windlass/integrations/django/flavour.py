"""`django.tasks` and its backport `django-tasks`: one contract, and classes of their own, named by one value each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """The names that a backend needs from either module."""

    result: Callable[..., Any]  # TaskResult
    status: Any  # TaskResultStatus
    error: Callable[..., Any]  # TaskError
    context: Callable[..., Any]  # TaskContext
    normalize_json: Callable[[Any], Any]
    invalid: type[Exception]
    missing: type[Exception]  # TaskResultDoesNotExist
    enqueued: Any  # the three signals
    started: Any
    finished: Any
