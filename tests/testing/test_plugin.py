"""The pytest plugin, in runs of pytest of its own: with the plugin alone, as it is found by its entry point."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from servers import url_of

pytest_plugins = ["pytester"]

PROJECT = Path(__file__).parents[2] / "pyproject.toml"

SHOP = """
from windlass import Windlass

app = Windlass("sqlite:////nowhere/jobs.db")
sent = []

@app.job
def send(to: str, subject: str = "hi") -> str:
    sent.append(to)
    return to

def signup(address: str) -> None:
    send.enqueue(address)
"""

STORIES = """
from shop import send, sent, signup

def test_signup_sends_mail(windlass):
    signup("a@example.org")
    windlass.assert_enqueued(send, to="a@example.org")
    windlass.drain()
    windlass.assert_not_enqueued(send)
    assert sent == ["a@example.org"]

def test_the_next_test_begins_with_nothing(windlass, pytestconfig):
    assert windlass.jobs() == []
    wanted = pytestconfig.getoption("--windlass-url") or "sqlite"
    assert windlass.url.startswith(wanted[:6])
"""


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A program in a directory, and a pytest that loads the plugin by itself and no other."""
    entry = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]["pytest11"]
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", entry["windlass"])
    monkeypatch.syspath_prepend(pytester.path)
    pytester.makepyfile(shop=SHOP)
    return pytester


def test_the_app_is_named_in_the_configuration(shop: pytest.Pytester) -> None:
    shop.makeini("[pytest]\nwindlass_app = shop:app")
    shop.makepyfile(STORIES)

    shop.runpytest_subprocess("--strict-config", "-W", "error").assert_outcomes(passed=2)


def test_the_app_is_returned_by_a_fixture_of_the_users(shop: pytest.Pytester) -> None:
    shop.makeconftest(
        """
        import pytest, shop

        @pytest.fixture
        def windlass_app():
            return shop.app
        """
    )
    shop.makepyfile(STORIES)

    shop.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.postgres
def test_the_same_tests_run_on_postgresql(shop: pytest.Pytester) -> None:
    shop.makeini("[pytest]\nwindlass_app = shop:app")
    shop.makepyfile(STORIES)

    shop.runpytest_subprocess(f"--windlass-url={url_of('postgres')}").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ("", "*the fixture 'windlass' does not know your app; name it in pytest's configuration*windlass_app*"),
        ("windlass_app = shop:ap", "*windlass_app = shop:ap:*shop has no*'ap'; did you mean 'app'?*"),
        ("windlass_app = shp:app", "*windlass_app = shp:app:*no module 'shp'*did you mean shop?*"),
    ],
)
def test_an_app_that_cannot_be_found_is_one_clear_line(shop: pytest.Pytester, configuration: str, said: str) -> None:
    shop.makeini(f"[pytest]\n{configuration}")
    shop.makepyfile("def test_it(windlass): ...")

    result = shop.runpytest_subprocess()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])
    result.stdout.no_fnmatch_line("*another exception*")


def test_a_fixture_that_returns_something_else_is_one_clear_line(shop: pytest.Pytester) -> None:
    shop.makeconftest("import pytest\n@pytest.fixture\ndef windlass_app():\n    return 'shop:app'")
    shop.makepyfile("def test_it(windlass): ...")

    result = shop.runpytest_subprocess()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the fixture 'windlass_app' returns str, not the program's Windlass()*"])


def test_who_does_not_use_it_does_not_notice_it(shop: pytest.Pytester) -> None:
    shop.makepyfile(
        """
        import sys
        import windlass

        def test_nothing_of_it_is_there():
            assert windlass.__name__ == "windlass"
            heavy = ("windlass.runtime", "windlass.testing.harnesses")
            assert not [name for name in sys.modules if name.startswith(heavy)]
        """
    )

    shop.runpytest_subprocess("--strict-config", "--strict-markers", "-W", "error").assert_outcomes(passed=1)


def test_a_failed_drain_shows_the_handlers_line_and_not_the_machinery(shop: pytest.Pytester) -> None:
    shop.makeini("[pytest]\nwindlass_app = broken:app")
    shop.makepyfile(
        broken="""
        from windlass import Windlass

        app = Windlass("sqlite:////nowhere/jobs.db")

        @app.job
        def divide(by: int) -> float:
            return 1 / by
        """
    )
    shop.makepyfile(
        """
        from broken import divide

        def test_it(windlass):
            divide.enqueue(0)
            windlass.drain(raise_errors=True)

        def test_what_was_enqueued(windlass):
            divide.enqueue(2)
            windlass.assert_enqueued(divide, by=3)
        """
    )

    result = shop.runpytest_subprocess()

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*return 1 / by*", "E*ZeroDivisionError*", "E*expected a job of divide(by=3)"])
    result.stdout.no_fnmatch_line("*testing/harnesses.py*")
    result.stdout.no_fnmatch_line("*testing/ran.py*")


def test_coroutines_as_tests(shop: pytest.Pytester) -> None:
    shop.makeini("[pytest]\nwindlass_app = shop:app\nasyncio_mode = auto")
    shop.makepyfile(
        """
        from shop import send

        async def test_it(windlass):
            await send.aenqueue("a@example.org")
            assert [ran.output for ran in await windlass.adrain()] == ["a@example.org"]
        """
    )

    shop.runpytest_subprocess("-p", "pytest_asyncio.plugin").assert_outcomes(passed=1)
