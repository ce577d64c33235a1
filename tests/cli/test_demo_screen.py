"""What `windlass demo` draws, in every size of a terminal, and the plain lines that it prints."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from rich.console import Console

from windlass.model.admission import LimitRow
from windlass.model.job import COLUMNS, Job, new_id
from windlass.model.processors import ProcessorState
from windlass.model.rows import QueueRow
from windlass.model.schedule import TickOutcome, TickRow
from windlass.model.state import State

if TYPE_CHECKING:
    from windlass.cli.demo.scene import Scene


@pytest.fixture
def scene() -> Scene:
    from windlass.cli.demo.reports import Processors, ReportedEnd, Slot
    from windlass.cli.demo.scene import Scene

    scene = Scene(workers=2)
    scene.enqueued = 100
    row = QueueRow(queue="mail", queued=40, running=4, failed=1, waiting=0, dead=2, lag=None)
    scene.set_counts({State.SUCCEEDED: 53, State.DEAD: 2, State.RUNNING: 4, State.FAILED: 1, State.QUEUED: 40}, [row])
    job = "0" * 24 + "cafe1234"
    slots = [
        Slot("mail-processor-1", ProcessorState.BUSY, "newsletter", job, 0.2),
        Slot("shop-processor-1", ProcessorState.ERROR, "ask_partner", job, 1.0),
        Slot("shop-processor-2", ProcessorState.IDLE, None, None, 0.0),
    ]
    scene.receive(Processors(1, 4001, slots))
    scene.receive(Processors(2, 4002, slots))
    error = "ValueError: line 7 is no product"
    scene.receive(ReportedEnd(1, 0.0, job, "import_feed", "1 of 2", f"failed in 1ms: {error}", error, State.FAILED))
    return scene


def drawn(scene: Scene, columns: int, lines: int) -> list[str]:
    from windlass.cli.demo.screen import lay_out

    console = Console(width=columns, height=lines, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(lay_out(scene, columns, lines))
    return captured.get().splitlines()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40), (200, 50), (81, 33), (300, 24)])
def test_everything_known_is_on_the_screen_in_every_size(scene: Scene, columns: int, lines: int) -> None:
    scene.narrate("something happens " * 4)

    screen = drawn(scene, columns, lines)

    assert len(screen) == lines
    assert all(len(line) <= columns for line in screen)
    shown = "\n".join(screen)
    for text in ("55 of 100 jobs", "○40", "worker 2", "shop-processor-1", "newsletter", "error", "idle", "ValueError"):
        assert text in shown


@pytest.mark.parametrize(("columns", "lines"), [(20, 5), (1, 1), (79, 10)])
def test_a_terminal_that_is_made_too_small_meanwhile_breaks_nothing(scene: Scene, columns: int, lines: int) -> None:
    assert drawn(scene, columns, lines) is not None


def test_a_killed_worker_shows_what_it_held_until_another_process_reports(scene: Scene) -> None:
    from windlass.cli.demo.reports import Processors

    scene.mark_killed(2)
    scene.receive(Processors(2, 4002, []))  # the report was under way when the worker died

    assert "pid 4002, killed" in "\n".join(drawn(scene, 80, 24))
    assert "✖ newsletter" in "\n".join(drawn(scene, 80, 24))

    scene.receive(Processors(2, 4003, []))

    assert "killed" not in "\n".join(drawn(scene, 80, 24)).replace("kill -9", "")
    assert scene.story[-1].text == "worker 2 is replaced by a new process, pid 4003"


def test_many_successes_do_not_push_a_failure_out(scene: Scene) -> None:
    from windlass.cli.demo.reports import ReportedEnd

    for _ in range(500):
        scene.receive(ReportedEnd(1, 0.0, "ab" * 16, "newsletter", "1 of 4", "succeeded in 9ms", None, State.SUCCEEDED))

    shown = "\n".join(drawn(scene, 80, 24))
    assert "500×  newsletter" in shown
    assert "failed (1 of 2): ValueError" in shown


# Limits and the heartbeat


def at_limits(scene: Scene) -> Scene:
    """One domain is full, one is not, and one is done."""
    whole: dict[str, Any] = {"name": "domain", "most": 2, "period": None, "burst": 1, "free_in": 0.0}
    scene.set_limits(
        [
            LimitRow(key="domain:rope.example", used=2, waiting=7, **whole),
            LimitRow(key="domain:winch.example", used=1, waiting=0, **whole),
            LimitRow(key="domain:done.example", used=0, waiting=0, **whole),
        ]
    )
    return scene


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (80, 40), (140, 40), (300, 24)])
def test_it_shows_the_slots_in_use_and_the_waiting_jobs(scene: Scene, columns: int, lines: int) -> None:
    screen = drawn(at_limits(scene), columns, lines)

    (line,) = [line for line in screen if line.startswith(" limits ")]
    assert line.split() == [
        *("limits", "rope.example", "2", "of", "2,", "7", "waiting"),
        *("winch.example", "1", "of", "2,", "0", "waiting"),
    ]


def test_in_a_low_terminal_limits_and_phases_have_one_line(scene: Scene) -> None:
    def shown(lines: int) -> list[str]:
        return [line.split()[0] for line in drawn(scene, 80, lines) if line.startswith((" orders ", " limits "))]

    idle = shown(24), shown(40)
    at_limits(scene)

    assert idle == (["orders"], ["orders", "limits"])
    assert (shown(24), shown(40)) == (["limits"], ["orders", "limits"])


def tick(second: int, job: UUID | None, outcome: TickOutcome = TickOutcome.FIRED) -> TickRow:
    at = datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC)
    return TickRow(at=at, outcome=outcome, job=job, noted_at=at, reason=None)


@pytest.mark.parametrize(("columns", "words"), [(80, "♥ 2 "), (140, "♥ 2 heartbeats, every 2 s")])
def test_each_tick_is_counted_once_and_is_one_more_job(scene: Scene, columns: int, words: str) -> None:
    first, second = new_id(), new_id()

    scene.add_ticks([tick(2, first), tick(0, None, TickOutcome.MISSED)])
    scene.add_ticks([tick(4, second), tick(2, first)])

    assert scene.enqueued == 102
    assert words in drawn(scene, columns, 24)[0]


def test_lines_tell_of_limits_while_they_are_in_use(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from windlass.cli.demo import plain

    monkeypatch.setattr(plain, "STATUS", 0.0)
    scene.add_ticks([tick(2, new_id())])

    plain.Plain().show(at_limits(scene))
    output = capsys.readouterr().out
    scene.set_limits([])
    plain.Plain().show(scene)

    assert "limits: domain:rope.example 2 of 2, 7 waiting; domain:winch.example 1 of 2, 0 waiting\n" in output
    assert "orders:" not in output
    assert " jobs/s · heartbeat 1\n" in output
    assert "limits:" not in capsys.readouterr().out


# The phases of the orders


def order(phase: str, status: State) -> Job:
    columns = dict.fromkeys(COLUMNS) | {"id": new_id(), "pipeline": "order", "phase": phase, "status": status}
    return Job(**columns)  # type: ignore[arg-type]


def of_phases(scene: Scene) -> Scene:
    """Twelve orders: five in the first phase, two in the second, one in the third, four shipped."""
    queued, running, failed, succeeded = State.QUEUED, State.RUNNING, State.FAILED, State.SUCCEEDED
    scene.set_orders(
        [order("pick", queued)] * 3
        + [order("pick", running)] * 2
        + [order("pack", running), order("pack", failed)]
        + [order("ship", running)]
        + [order("ship", succeeded)] * 4
    )
    return scene


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (80, 40), (120, 40), (300, 24)])
def test_it_is_shown_how_many_orders_are_in_which_phase(scene: Scene, columns: int, lines: int) -> None:
    screen = drawn(of_phases(scene), columns, lines)

    (line,) = [line for line in screen if line.startswith(" orders ")]
    assert line.split() == [
        *("orders", "pick", "○3", "▶2", "↻0", "→", "pack", "○0", "▶1", "↻1", "→"),
        *("ship", "○0", "▶1", "↻0", "→", "●", "4", "of", "12"),
    ]


def test_hundreds_of_orders_do_not_break_the_line(scene: Scene) -> None:
    scene.set_orders([order(phase, State.QUEUED) for phase in ("pick", "pack", "ship")] * 333)

    (line,) = [line for line in drawn(scene, 80, 24) if line.startswith(" orders ")]
    assert "● 0 of 999" in line


def test_where_not_all_processors_have_room_those_that_work_are_shown(scene: Scene) -> None:
    from windlass.cli.demo.reports import Processors, Slot

    idle = [Slot(f"{queue}-processor-{n}", ProcessorState.IDLE, None, None, 9.0) for queue in "abcd" for n in (1, 2)]
    recent = Slot("mail-processor-1", ProcessorState.IDLE, None, None, 0.5)
    busy = [
        Slot("pick-processor-1", ProcessorState.BUSY, "pick", "0" * 32, 0.1),
        Slot("pick-processor-2", ProcessorState.ERROR, "pick", "0" * 32, 30.0),
        Slot("pack-processor-1", ProcessorState.BUSY, "pack", "0" * 32, 20.0),
        Slot("ship-processor-1", ProcessorState.BUSY, "ship", "0" * 32, 0.1),
    ]
    scene.receive(Processors(1, 4001, [*idle, recent, *busy]))
    scene.receive(Processors(2, 4002, []))

    shown = [line[:40] for line in drawn(scene, 80, 24) if "-processor-" in line]

    assert [line.split()[1] for line in shown] == [
        "a-processor-1",
        "mail-processor-1",
        *("pick-processor-1", "pick-processor-2", "pack-processor-1", "ship-processor-1"),
    ]


def test_a_phase_that_was_passed_is_good_news_and_counted(scene: Scene) -> None:
    from windlass.cli.demo.reports import ReportedEnd

    words = "goes on to its next phase, after 9ms: pack"
    for _ in range(3):
        scene.receive(ReportedEnd(1, 0.0, "ab" * 16, "pick", "1 of 4", words, None, State.QUEUED, "pack"))
    for _ in range(2):
        scene.receive(ReportedEnd(1, 0.0, "ab" * 16, "pick", "1 of 4", "released after 9ms", None, State.QUEUED))

    assert [(lives.times, lives.last.text) for lives in scene.attempts][-3:] == [
        (3, words),
        (1, "released after 9ms"),
        (1, "released after 9ms"),
    ]


def test_lines_tell_of_the_phases_while_orders_are_under_way(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from windlass.cli.demo import plain
    from windlass.cli.demo.reports import Processors, Slot

    monkeypatch.setattr(plain, "STATUS", 0.0)
    slots = [
        Slot("mail-processor-1", ProcessorState.BUSY, "newsletter", "0" * 32, 0.1),
        Slot("pick-processor-1", ProcessorState.IDLE, None, None, 0.1),
        Slot("pack-processor-1", ProcessorState.BUSY, "pack", "0" * 32, 0.1),
    ]
    scene.receive(Processors(2, 4002, slots))

    plain.Plain().show(of_phases(scene))
    output = capsys.readouterr().out
    scene.set_orders([order("ship", State.SUCCEEDED)] * 12)
    plain.Plain().show(scene)
    told_later = capsys.readouterr().out

    assert "orders: 5 in pick, 2 in pack, 1 in ship; 4 of 12 shipped\n" in output
    assert "worker 2: pack-processor-1 busy\n" in output
    assert " queued · " in told_later
    assert "orders:" not in told_later


def test_the_line_of_one_worker_says_so(scene: Scene) -> None:
    from windlass.cli.demo.plain import _status

    assert " · 2 workers · " in _status(scene)
    scene.mark_killed(1)
    assert " · 1 worker · " in _status(scene)
