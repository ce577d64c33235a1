"""Plant faults in a copy of the tree, one at a time, and check that the tests notice each: `make test-planted`.

A fault changes one line of a promise: claim, finish, rescue, limits, joins, schedules, on each store. The tests of the
folders that prove it run until the first failure. Exit 1 if a fault goes unnoticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
STORE = Path("src/windlass/store")
POSTGRES, SQLITE = STORE / "postgres/queries", STORE / "sqlite/queries"
TESTS = ("tests/store", "tests/engine")


class Fault(NamedTuple):
    """In `file`, every `line` is replaced."""

    what: str
    file: Path
    line: str
    by: str


FAULTS = (
    Fault("claim: two claims take one row", POSTGRES / "claim.sql", "FOR UPDATE SKIP LOCKED", ""),
    Fault(
        "claim: a running job is claimed", SQLITE / "claim.sql", "status IN ('queued', 'failed')", "status <> 'dead'"
    ),
    Fault("finish: any lease may finish", POSTGRES / "finish.sql", " AND jobs.token = ending.token", ""),
    Fault("finish: any lease may finish", SQLITE / "finish.sql", " AND token = :token", ""),
    Fault("rescue: live workers are dead", POSTGRES / "workers.sql", " AND alive_until < windlass.now()", ""),
    Fault("rescue: live workers are dead", SQLITE / "workers.sql", " AND alive_until < :now\n", "\n"),
    Fault(
        "limits: one slot too many", STORE / "postgres/migrations/0001_windlass.sql", "most - used)", "most - used + 1)"
    ),
    Fault("limits: one slot too many", STORE / "sqlite/functions.py", "most - used)", "most - used + 1)"),
    Fault("joins: an arrival is lost", POSTGRES / "flow.sql", "waits.pending - held.arrived", "waits.pending"),
    Fault(
        "joins: an arrival is lost",
        SQLITE / "flow.sql",
        "windlass_waits.pending - arrived.arrived",
        "windlass_waits.pending",
    ),
    Fault("schedules: a tick fires early", POSTGRES / "schedules.sql", "(next_at <= windlass.now() OR", "(true OR"),
    Fault("schedules: a tick fires early", SQLITE / "schedules.sql", "(next_at <= ?2 OR", "(true OR"),
)


def main() -> int:
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="windlass-planted-") as folder:
        copy = Path(folder)
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in listed.stdout.splitlines():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        for fault in FAULTS:
            test = find_test(fault, copy)
            unnoticed += test is None
            store = "SQLite" if "sqlite" in fault.file.parts else "PostgreSQL"
            print(f"{'✖' if test is None else '✔'} {store:10}  {fault.what:31}  {test or 'unnoticed'}", flush=True)
    return 1 if unnoticed else 0


def find_test(fault: Fault, copy: Path) -> str | None:
    """The first test that fails with this fault, and passes without it."""
    original = (copy / fault.file).read_text()
    if fault.line not in original:
        raise SystemExit(f"{fault.file} has no line with {fault.line!r} any more; write the fault anew")
    (copy / fault.file).write_text(original.replace(fault.line, fault.by))
    failed = run(copy, "-n", "3", "--dist", "worksteal", "-x", *TESTS)
    (copy / fault.file).write_text(original)
    if failed and run(copy, "-n", "0", failed[0]):
        raise SystemExit(f"{failed[0]} fails without a fault, too; `make test` has to pass first")
    return failed[0] if failed else None


def run(copy: Path, *arguments: str) -> list[str]:
    """The tests that fail."""
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}:{copy / 'tools'}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    return [line.split()[1] for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]


if __name__ == "__main__":
    sys.exit(main())
