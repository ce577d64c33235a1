"""The check at the end of `windlass demo`: only what the store holds counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from windlass.model.job import COLUMNS, Attempt, Failure, Job, new_id
from windlass.model.state import State


def test_a_job_that_is_lost_fails_the_check() -> None:
    from windlass.cli.demo.summary import Account, check

    account = Account(enqueued=3, counts={State.SUCCEEDED: 2}, cast=[], victims=frozenset(), complete=False)

    assert [(sentence.text, sentence.holds) for sentence in check(account)] == [("3 jobs enqueued, 1 lost", False)]


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def mail(type: str, *, created: float, started: float | None, status: State = State.SUCCEEDED) -> Job:
    """A job of the mail queue, with its times in seconds after noon."""
    begun = None if started is None else NOON + timedelta(seconds=started)
    columns = dict.fromkeys(COLUMNS) | {
        "id": new_id(),
        "type": type,
        "status": status,
        "input": "{}",
        "started_at": begun,
    }
    return Job(**columns | {"created_at": NOON + timedelta(seconds=created)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cast", "expected"),
    [
        # The newsletter of another round was done before the reset came: only the second one was overtaken.
        ([(0, 1, "newsletter"), (2, 9, "newsletter"), (3, 4, "password_reset")], [(1, True)]),
        ([(0, 5, "newsletter"), (3, 6, "password_reset")], [(0, False)]),
        ([(0, None, "newsletter"), (3, 4, "password_reset")], [(1, True)]),  # Ctrl-C came before its turn
        ([(0, 1, "newsletter"), (3, 4, "password_reset")], []),  # there was nothing to overtake
    ],
)
def test_a_reset_is_judged_by_the_newsletters_that_waited_when_it_came(
    cast: list[tuple[float, float | None, str]], expected: list[tuple[int, bool]]
) -> None:
    from windlass.cli.demo.summary import Account, check

    jobs = [
        mail(type, created=created, started=started, status=State.SUCCEEDED if started is not None else State.QUEUED)
        for created, started, type in cast
    ]
    account = Account(
        enqueued=len(jobs), counts={State.SUCCEEDED: len(jobs)}, cast=jobs, victims=frozenset(), complete=False
    )

    assert [(sentence.text, sentence.holds) for sentence in check(account)][1:] == [
        (f"each password reset overtook {passed} newsletters or more", holds) for passed, holds in expected
    ]


def test_a_show_without_a_rescue_fails_the_check() -> None:
    from windlass.cli.demo.summary import Account, check

    account = Account(
        enqueued=2, counts={State.SUCCEEDED: 2}, cast=[], victims=frozenset(), complete=True, beats={NOON: new_id()}
    )

    assert [sentence.text for sentence in check(account) if not sentence.holds] == [
        "the killed worker's render was rescued, ran again and succeeded"
    ]


# The limit and the heartbeat


def fetch(began: float, ended: float, domain: str = "rope.example") -> Job:
    """A price that was fetched from `began` to `ended`, in seconds after noon."""
    columns = dict.fromkeys(COLUMNS) | {
        "id": new_id(),
        "type": "fetch_price",
        "status": State.SUCCEEDED,
        "input": f'{{"domain": "{domain}"}}',
        "created_at": NOON,
        "started_at": NOON + timedelta(seconds=began),
        "finished_at": NOON + timedelta(seconds=ended),
    }
    return Job(**columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fetches", "holds"),
    [
        ([fetch(0, 2), fetch(1, 3), fetch(2, 4), fetch(3, 5)], True),  # one begins when another has ended
        ([fetch(0, 2), fetch(1, 3), fetch(1.9, 4)], False),
        ([fetch(0, 2), fetch(1, 3), fetch(0, 9, "winch.example"), fetch(1, 9, "winch.example")], True),
        ([fetch(0, 9), fetch(1, 2), fetch(3, 4), fetch(3.5, 5)], False),
    ],
)
def test_a_limit_is_judged_by_the_times_of_the_attempts(fetches: list[Job], holds: bool) -> None:
    from windlass.cli.demo.summary import Account, check

    count = len(fetches)
    account = Account(
        enqueued=count, counts={State.SUCCEEDED: count}, cast=fetches, victims=frozenset(), complete=False
    )

    assert [(sentence.text, sentence.holds) for sentence in check(account)][1:] == [
        (f"{count} prices were fetched, never more than 2 at a time of one domain", holds)
    ]


def test_the_heartbeat_is_judged_by_its_ticks() -> None:
    from windlass.cli.demo.summary import Account, check

    def judged(beats: dict[datetime, UUID], *, complete: bool = False) -> list[tuple[str, bool]]:
        whole = {"enqueued": 0, "counts": {}, "cast": [], "victims": frozenset[UUID](), "complete": complete}
        checks = check(Account(**whole, beats=beats))  # type: ignore[arg-type]
        return [(sentence.text, sentence.holds) for sentence in checks if "heartbeat" in sentence.text]

    later, between = NOON + timedelta(seconds=2), NOON + timedelta(seconds=3)
    one, other = new_id(), new_id()

    assert judged({NOON: one, later: other}) == [("the heartbeat fired 2 times, one job for each tick", True)]
    assert judged({NOON: one, later: one}) == [("the heartbeat fired 2 times, one job for each tick", False)]
    assert judged({NOON: one, between: other}) == [("the heartbeat fired 2 times, one job for each tick", False)]
    assert judged({}) == []
    assert judged({}, complete=True) == [("the heartbeat fired", False)]


# The phases of the orders


def order(*way: str, number: int = 1001, failed_in: str | None = None, output: str = "picked, packed, shipped") -> Job:
    """An order that succeeded after these phases; the store keeps an entry of each but the last one."""
    fields = {"attempt": 1, "fence": 1, "worker": None, "started_at": NOON, "finished_at": NOON}
    failure = Failure(type="LookupError", message="no tape", attempt=1, attempted_at=NOON)
    attempts: list[Attempt] = []
    for phase in way:
        if phase == failed_in:
            attempts.append(Attempt(**fields, outcome="failed", phase=phase, error=failure))  # type: ignore[arg-type]
        attempts.append(Attempt(**fields, outcome="succeeded", phase=phase))  # type: ignore[arg-type]
    columns = dict.fromkeys(COLUMNS) | {
        "id": new_id(),
        "type": way[-1],
        "pipeline": "order",
        "phase": way[-1],
        "status": State.SUCCEEDED,
        "input": f'{{"order": {number}}}',
        "output": msgspec.json.encode(output).decode(),
        "attempts": msgspec.json.encode(attempts[:-1]).decode(),
        "created_at": NOON,
    }
    return Job(**columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "holds"),
    [
        (order("pick", "pack", "ship"), True),
        (order("pick", "pack", "ship", failed_in="pack"), True),
        (order("pick", "ship"), False),
        (order("pack", "pick", "ship"), False),
        (order("pick", "pack", "pack", "ship"), False),
        (order("pick", "pack"), False),
        (order("pick", "pack", "ship", output="packed, shipped"), False),
    ],
)
def test_an_order_is_judged_by_the_phases_that_the_store_remembers(job: Job, holds: bool) -> None:
    from windlass.cli.demo.summary import Account, check

    orders = [order("pick", "pack", "ship"), job]
    account = Account(enqueued=2, counts={State.SUCCEEDED: 2}, cast=orders, victims=frozenset(), complete=False)

    assert [(sentence.text, sentence.holds) for sentence in check(account)][1:] == [
        ("2 orders went through three phases each, in order: pick, pack, ship", holds)
    ]


@pytest.mark.parametrize(("failed_in", "holds"), [("pack", True), ("pick", False), (None, False)])
def test_the_order_without_tape_is_to_fail_in_its_second_phase(failed_in: str | None, holds: bool) -> None:
    from windlass.cli.demo.summary import Account, check

    cast = [order("pick", "pack", "ship", number=1004, failed_in=failed_in)]
    account = Account(enqueued=1, counts={State.SUCCEEDED: 1}, cast=cast, victims=frozenset(), complete=False)

    assert [(sentence.text, sentence.holds) for sentence in check(account)][2:] == [
        ("order 1004 failed in its second phase, and was retried there", holds)
    ]
