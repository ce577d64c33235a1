"""`windlass status` and `windlass top`: one document for scripts, and a live view for people."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

from .cli_store import CliStore

PATIENCE = 60.0  # seconds


def test_the_status_is_one_document(cli_store: CliStore) -> None:
    cli_store.enqueue(2, queue="mail")
    cli_store.register_worker(queues=("report",), name="host:7")

    status = cli_store.run_json("status", code=1)

    assert list(status) == ["health", "counts", "counted", "queues", "workers"]
    assert status["counts"]["queued"] == 2
    assert [(row["queue"], row["queued"]) for row in status["queues"]] == [("mail", 2)]
    assert [row["name"] for row in status["workers"]] == ["host:7"]
    assert status["health"]["ok"] is False


def test_the_status_in_words(cli_store: CliStore) -> None:
    cli_store.register_worker()

    result = cli_store.run("status")

    assert result.exit_code == 0
    assert "jobs: 0 queued, 0 running" in result.stdout
    assert "0 queues, 1 live workers" in result.stdout


def test_top_needs_a_terminal(cli_store: CliStore) -> None:
    result = cli_store.run("top")

    assert result.exit_code == 2
    assert "windlass status --json" in result.stderr


def test_top_shows_the_queues_and_obeys_its_keys(cli_store: CliStore) -> None:
    """Given a queue and two failed jobs, when keys are pressed, then it is paused, one is retried, one cancelled.

    Several keys may come at once, and the chosen job stays chosen when another one comes before it.
    """
    failed = [cli_store.fail_job(queue="mail") for _ in range(2)]
    (job,) = cli_store.enqueue(queue="mail", type="send\x1b[31m")
    master, slave = pty.openpty()
    environment = {**os.environ, "WINDLASS_URL": cli_store.url, "COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    command = [sys.executable, "-m", "windlass", "top", "--every", "0.2"]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as running:
        os.close(slave)
        seen = b""

        def until(text: bytes) -> None:
            nonlocal seen
            ends = time.monotonic() + PATIENCE
            while text not in seen:
                if time.monotonic() > ends:
                    running.kill()  # else it would be waited for
                    raise AssertionError(seen[-2000:])
                if select.select([master], [], [], 1.0)[0]:
                    seen += os.read(master, 65_536)

        until(b"QUEUES")
        os.write(master, b"p")
        until(b"queue mail is paused")
        os.write(master, b"\t\x1b[B")  # the second job of the list, which has the newest first
        until(b"\x1b[7msend")
        later = cli_store.fail_job(queue="late")
        until(str(later)[:20].encode())
        os.write(master, b"r")
        until(f"{failed[0]} is due now".encode())
        os.write(master, b"c")
        until(b"press c again")
        os.write(master, b"c")
        until(b": cancelled")
        assert b"send\x1b[31m" not in seen
        os.write(master, b"q")
        assert running.wait(PATIENCE) == 0
        os.close(master)

    gates = cli_store.call(lambda store: store.gates())
    assert [(gate.name, gate.state) for gate in gates] == [("mail", "paused")]
    assert cli_store.status(job) == "queued"
    assert sorted(map(cli_store.status, failed)) == ["cancelled", "queued"]
