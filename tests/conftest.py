"""What holds for every test: PostgreSQL is part of it, and its absence is an error and not a skip."""

from __future__ import annotations

import os

import pytest

URL = "WINDLASS_TEST_POSTGRES_URL"


def pytest_configure(config: pytest.Config) -> None:
    if not os.environ.get(URL):
        raise pytest.UsageError(
            f"{URL} is not set, and half of the tests need it; run: make test, "
            "or: .venv/bin/python tools/with_postgres.py -- .venv/bin/pytest …"
        )
