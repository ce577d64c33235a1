"""Odd rows, a user without rights, another program's schema: commands answer in sentences, never in a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from windlass.cli.main import cli

from .rig import FaultLab
from .test_odd_rows import GUARDS, LAST, ODD


def windlass(*arguments: str, url: str) -> Result:
    """A command as a user sees it: what it does not foresee would be an exception here."""
    result = CliRunner().invoke(cli, [*arguments, "--url", url], prog_name="windlass")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def findings(url: str) -> dict[str, tuple[str, str, str]]:
    """The worst finding of `windlass doctor` on each check."""
    found: dict[str, tuple[str, str, str]] = {}
    for each in json.loads(windlass("doctor", "--json", url=url).stdout)["findings"]:
        found.setdefault(each["check"], (each["level"], each["said"], each["advice"] or ""))
    return found


# Odd rows

SHAPES = (  # error, attempts, follow_ups, input
    ('"a text"', "{ }", "[]", "5"),
    ("{ }", "[1]", '{"dead": 1}', "[]"),
    ("[]", '[{"attempt": "x"}]', '"x"', '"x"'),
    ('{"type": 1}', '"x"', "5", "null"),
    ('{"attemptedAt": "0000"}', "[[]]", "null", "{ }"),
)


def dialect(lab: FaultLab) -> str:
    return urlsplit(lab.url).scheme.replace("postgresql", "postgres")


def test_a_job_whose_documents_have_another_shape_is_shown(lab: FaultLab) -> None:
    (job,) = lab.enqueue("plain")
    broken = ("", "{", "no JSON", "{") if dialect(lab) == "sqlite" else SHAPES[0]

    for documents in (*SHAPES, broken):
        error, attempts, follow_ups, input = documents
        lab.sql(
            f"UPDATE {{}}jobs SET error = '{error}', attempts = '{attempts}', follow_ups = '{follow_ups}',"
            f" input = '{input}', output = '{input}' WHERE id = '{job}'"
        )

        assert str(job) in windlass("jobs", "show", str(job), "--full", url=lab.url).output, documents
        assert str(job) in windlass("jobs", "show", str(job), "--json", url=lab.url).output, documents
    assert str(job) in windlass("jobs", "list", url=lab.url).output


def test_a_job_at_the_ends_of_the_calendar_is_shown(lab: FaultLab) -> None:
    first, last = {
        "postgres": ("'0001-01-01 00:00+00'", "'9999-12-31 23:59:59+00'"),
        "sqlite": ("-62135596800000000", "253402300799000000"),
    }[dialect(lab)]
    (job,) = lab.enqueue("plain")
    lab.sql(f"UPDATE {{}}jobs SET created_at = {first}, run_at = {last}, updated_at = {last} WHERE id = '{job}'")

    assert str(job) in windlass("jobs", "show", str(job), url=lab.url).output
    assert str(job) in windlass("jobs", "show", str(job), "--json", url=lab.url).output


def test_a_job_from_before_the_checks_is_shown_or_explained(lab: FaultLab) -> None:
    (job,) = lab.enqueue("plain")
    for statement in GUARDS[dialect(lab)]:
        lab.sql(statement)

    for kind, change in ODD.items():
        lab.sql("UPDATE {}jobs SET run_at = created_at, fence = 0, attempt = 0, finished_at = NULL")
        lab.sql(f"UPDATE {{}}jobs SET {change.format(**LAST[dialect(lab)])} WHERE id = '{job}'")

        shown = windlass("jobs", "show", str(job), url=lab.url).output
        assert str(job) in shown or "outside the years 1 to 9999" in shown, kind
        assert "outside the years" not in shown or "SELECT id FROM windlass.jobs" in shown, kind
        if not kind.startswith(("due never", "due in", "updated")):
            level, said, advice = findings(lab.url)["rows"]
            assert (level, str(job) in said, "UPDATE" in advice) == ("problem", True, True), kind
        created = "statement_timestamp()" if dialect(lab) == "postgres" else "1700000000000000"
        lab.sql(f"UPDATE {{}}jobs SET created_at = {created}, updated_at = {created}")


# The clock


def test_doctor_says_that_the_clock_was_set_back(lab: FaultLab) -> None:
    (job,) = lab.enqueue("plain")
    assert findings(lab.url)["time"][0] == "ok"

    ahead = timedelta(days=1) // timedelta(microseconds=1)
    later = "created_at + interval '1 day'" if dialect(lab) == "postgres" else f"created_at + {ahead}"
    lab.sql(f"UPDATE {{}}jobs SET created_at = {later} WHERE id = '{job}'")

    level, said, advice = findings(lab.url)["time"]
    assert level == "warning"
    assert "in the future" in said
    assert "set back" in said
    assert "timedatectl" in advice


# Rights


@pytest.fixture
def stranger(postgres_lab: FaultLab) -> Iterator[str]:
    """The URL of a user that may connect and nothing else."""
    name = f"stranger_{uuid4().hex[:8]}"
    postgres_lab.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'stranger'")
    parts = urlsplit(postgres_lab.url)
    yield urlunsplit(parts._replace(netloc=f"{name}:stranger@{parts.netloc.rpartition('@')[2]}"))
    postgres_lab.sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def user(url: str) -> str:
    return urlsplit(url).username or ""


def test_doctor_without_any_right_names_the_grant(postgres_lab: FaultLab, stranger: str) -> None:
    level, said, advice = findings(stranger)["schema"]

    assert level == "problem"
    assert "permission denied" in said
    assert "GRANT USAGE ON SCHEMA windlass" in advice
    assert "permission denied" in windlass("jobs", "list", url=stranger).output


def test_doctor_that_may_read_some_tables_tells_what_it_could_not_ask(postgres_lab: FaultLab, stranger: str) -> None:
    postgres_lab.sql(f"GRANT USAGE ON SCHEMA windlass TO {user(stranger)}")
    assert findings(stranger)["schema"][0] == "problem"

    postgres_lab.sql(f"GRANT SELECT ON windlass.migrations, windlass.jobs TO {user(stranger)}")
    found = findings(stranger)

    assert found["schema"][0] == "ok"
    for check in ("plans", "tables", "types", "holders", "rows", "joins", "limits"):
        level, said, advice = found[check]
        assert level == "warning"
        assert "permission denied" in said
        assert "GRANT" in advice


# Another program's schema

FOREIGN = {
    "tables of another program": "CREATE TABLE windlass.sails (area float8)",
    "migrations of another program": "CREATE TABLE windlass.migrations (version text)",
    "migrations of another program with numbers in words": "CREATE TABLE windlass.migrations (number text);"
    "INSERT INTO windlass.migrations VALUES ('one')",
    "a view": "CREATE VIEW windlass.migrations AS SELECT 'x' AS version",
    "what is left of ours": "CREATE TABLE windlass.migrations (number int);"
    "INSERT INTO windlass.migrations VALUES ((SELECT max FROM public.newest))",
}


def test_doctor_on_another_programs_schema_says_so(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    lab.sql("CREATE TABLE public.newest AS SELECT max(number) FROM windlass.migrations")

    for kind, made in FOREIGN.items():
        lab.sql(f"DROP SCHEMA windlass CASCADE; CREATE SCHEMA windlass; {made}")

        level, said, advice = findings(lab.url)["schema"]

        assert level == "problem", kind
        assert "Windlass did not make" in said, kind
        assert "another database" in advice, kind
        assert windlass("jobs", "list", url=lab.url).exit_code == 2, kind
        assert windlass("migrate", url=lab.url).exit_code in (0, 2), kind
