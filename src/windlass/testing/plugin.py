"""The pytest plugin: a fixture `windlass` that puts the program's app on a throw-away database for one test.

The app is found by `windlass_app = shop:app` in pytest's configuration, or by a fixture `windlass_app` of the user's.
Only names are declared here; Windlass itself is imported by the first test that uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.testing.harnesses import Harness

HOW = (
    "the fixture 'windlass' does not know your app; name it in pytest's configuration (windlass_app = shop:app), or "
    "write a fixture 'windlass_app' that returns it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("windlass")
    group.addoption(
        "--windlass-url",
        metavar="URL",
        help="run the tests that use the fixture 'windlass' in throw-away databases on this PostgreSQL server",
    )
    parser.addini("windlass_app", "the app of the fixture 'windlass', as shop:app")


@pytest.fixture(name="windlass_app")
def app_from_configuration(pytestconfig: pytest.Config) -> Windlass:
    """The app under test; a fixture of the same name in your conftest.py replaces this one."""
    reference = pytestconfig.getini("windlass_app")
    if not reference:
        pytest.fail(HOW, pytrace=False)
    from windlass.declare.program import load
    from windlass.errors import ProgramError

    try:
        return load(reference)
    except ProgramError as error:
        problem = f"windlass_app = {reference}: {error}"
    pytest.fail(problem, pytrace=False)  # outside, so that pytest reports it once


@pytest.fixture(name="windlass")
def harness_of_one_test(windlass_app: object, pytestconfig: pytest.Config) -> Iterator[Harness]:
    """Your app on a throw-away database, with `drain()`, `run_one()`, `assert_enqueued()` and a `clock` to move."""
    from windlass.app import Windlass
    from windlass.testing import harness

    if not isinstance(windlass_app, Windlass):
        kind = type(windlass_app).__name__
        pytest.fail(f"the fixture 'windlass_app' returns {kind}, not the program's Windlass()", pytrace=False)
    with harness(windlass_app, pytestconfig.getoption("--windlass-url")) as windlass:
        yield windlass
