"""`windlass health`: the sentence, the findings with their commands, and the exit code for a script."""

from __future__ import annotations

from .cli_store import CliStore


def test_a_queue_without_a_worker_is_told_with_the_command_that_helps(cli_store: CliStore) -> None:
    cli_store.enqueue(2, queue="mail")

    result = cli_store.run("health", "-a", "app.py", "--url", cli_store.url)

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "mail stands still: 2 jobs are due and no worker serves it.",
        "  No worker of it is known.",
        "  → windlass worker app.py --queue mail",
        "  → windlass jobs list state:queued,failed queue:mail",
    ]


def test_a_quiet_store_is_well(cli_store: CliStore) -> None:
    cli_store.register_worker(queues=("mail",))

    result = cli_store.run("health")

    assert result.exit_code == 0
    assert result.stdout.startswith("All is quiet: nothing is due. One worker is ready.\n")
    assert "last 10 m;" in result.stdout  # an ordinary space, so that a search finds it


def test_the_health_as_json(cli_store: CliStore) -> None:
    cli_store.register_worker(queues=("mail",))
    cli_store.enqueue(queue="report")

    health = cli_store.run_json("health", code=1)

    assert (health["ok"], health["level"], health["findings"]) == (False, "bad", [])
    assert health["actions"][0] == {
        "label": "Copy start command",
        "command": "windlass worker app.py --queue report",
        "kind": "copy",
    }
    assert [(row["queue"], row["due"], row["empties"]) for row in health["queues"]] == [("report", 1, "never")]
