"""Run a command with a PostgreSQL server of its own, and leave nothing behind.

    python tools/with_postgres.py [--durable] -- command arguments…

The URL of the database is in WINDLASS_TEST_POSTGRES_URL. If that variable is already set, the command runs with it.
Otherwise this program makes a fresh cluster in a temporary directory, runs its server on a free port of 127.0.0.1 while
the command runs, then stops the server and removes the directory. The exit code is the command's.
"""

from __future__ import annotations

import argparse
import locale
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from private_server import (
    StoppedError,
    UnavailableError,
    pause,
    print_note,
    private_directory,
    run_apt,
    run_with,
    spawn,
    wait_until_ready,
    with_log,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

URL_VARIABLE = "WINDLASS_TEST_POSTGRES_URL"
NAME = "windlass"  # of the superuser and of the database

START_LIMIT = 60.0  # seconds until the server must accept connections
START_POLL = 0.05  # seconds between two checks of a starting server
STOP_LIMIT = 10.0  # seconds for a fast shutdown, and again for an immediate one

SETTINGS = {
    "autovacuum": "on",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "shared_buffers": "256MB",
    "synchronous_commit": "on",
}
# These databases do not outlive the command, so a crash of the machine loses nothing.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}

CREATECLUSTER_CONF = Path("/etc/postgresql-common/createcluster.conf")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command with a private PostgreSQL server.")
    parser.add_argument("--durable", action="store_true", help="leave fsync and full_page_writes on")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    arguments = parser.parse_args()

    def start() -> AbstractContextManager[str]:
        return private_postgres(durable=arguments.durable)

    return run_with(start, arguments.command, variable=URL_VARIABLE, what="PostgreSQL")


@contextmanager
def private_postgres(*, durable: bool = False, **settings: str) -> Iterator[str]:
    """The URL of a running server in a directory of its own; `settings` are PostgreSQL's."""
    binaries = find_binaries() or install_binaries()
    account = server_account()
    with (
        private_directory(account, memory=not durable) as directory,
        PrivateServer(binaries, directory, account, durable=durable, settings=settings) as url,
    ):
        yield url


def find_binaries() -> Path | None:
    """The directory of an installed server. A pg_config is not enough: libpq-dev installs one without a server."""
    candidates: list[Path] = []
    if shutil.which("pg_config"):
        answer = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        candidates.append(Path(answer.stdout.strip()))
    debian = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdecimal()]
    candidates += sorted(debian, key=lambda path: int(path.parent.name), reverse=True)
    if on_path := shutil.which("postgres"):
        candidates.append(Path(on_path).parent)
    needed = ("initdb", "pg_ctl", "postgres")
    return next((path for path in candidates if all(os.access(path / name, os.X_OK) for name in needed)), None)


def install_binaries() -> Path:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnavailableError(
            "No PostgreSQL server is installed. Install one (on Debian: sudo apt-get install postgresql),"
            f" or set {URL_VARIABLE} to a database that the tests may change, for example"
            " postgresql://user:password@127.0.0.1:5432/windlass_test."
        )
    print_note("no PostgreSQL server is installed; installing the package postgresql")
    if not CREATECLUSTER_CONF.exists():
        # Otherwise the package would also make a cluster for the whole machine and start it.
        CREATECLUSTER_CONF.parent.mkdir(parents=True, exist_ok=True)
        CREATECLUSTER_CONF.write_text("create_main_cluster = false\n")
    run_apt("postgresql")
    if (binaries := find_binaries()) is None:
        raise UnavailableError("The package postgresql is installed, but it contains no server.")
    return binaries


def server_account() -> pwd.struct_passwd | None:
    """The account of the server: PostgreSQL refuses to run as root. None: the account of this program."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


class PrivateServer:
    """A fresh cluster with an empty database. Entering starts the server and returns its URL, leaving stops it."""

    def __init__(
        self,
        binaries: Path,
        directory: Path,
        account: pwd.struct_passwd | None,
        *,
        durable: bool,
        settings: Mapping[str, str] = {},
    ) -> None:
        self._binaries = binaries
        self._directory = directory
        self._data = directory / "data"
        self._log = directory / "log"
        self._account = account
        options = SETTINGS | ({} if durable else NOT_DURABLE) | dict(settings)
        self._options = [f"--{name}={value}" for name, value in options.items()]

    def __enter__(self) -> str:
        self._make_cluster()
        self._make_database()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        address = ["-h", "127.0.0.1", "-p", str(port), "-k", str(self._directory)]
        self._server = self._spawn("postgres", "-D", str(self._data), *address, *self._options)
        try:
            self.wait_until_ready()
        except BaseException:
            self._stop()
            raise
        return f"postgresql://{NAME}@127.0.0.1:{port}/{NAME}"

    def wait_until_ready(self) -> None:
        wait_until_ready(self._accepts_connections, self._server, limit=START_LIMIT, log=self._log)

    def __exit__(self, *_: object) -> None:
        if self._server.poll() is not None:
            print_note(with_log("the server ended before the command did", self._log))
        self._stop()

    def _make_cluster(self) -> None:
        access = ["--auth=trust", f"--username={NAME}"]
        text = ["--encoding=UTF8", f"--locale={utf8_locale()}"]
        self._step("initdb", "-D", str(self._data), *access, *text, "--no-sync")

    def _make_database(self) -> None:
        """Create the database before a client can connect: the server program runs the statement itself."""
        statement = self._directory / "create.sql"
        statement.write_text(f"CREATE DATABASE {NAME}\n")
        options = ["--exit_on_error=on", *self._options]
        with statement.open("rb") as stdin:
            self._step("postgres", "--single", "-D", str(self._data), *options, "postgres", stdin=stdin)

    def _step(self, program: str, *arguments: str, stdin: IO[bytes] | None = None) -> None:
        child = self._spawn(program, *arguments, stdin=stdin)
        try:
            while child.poll() is None:
                pause(START_POLL)
        except StoppedError:
            child.terminate()
            child.wait()
            raise
        if child.returncode != 0:
            raise UnavailableError(with_log(f"{program} failed with exit code {child.returncode}", self._log))

    def _accepts_connections(self) -> bool:
        """Read the server's state as pg_ctl does: it is the eighth line of postmaster.pid."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def _stop(self) -> None:
        """Try a fast shutdown, then an immediate one, then SIGKILL."""
        for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            self._server.send_signal(signum)
            try:
                self._server.wait(STOP_LIMIT)
                return
            except subprocess.TimeoutExpired:
                continue

    def _spawn(self, program: str, *arguments: str, stdin: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return spawn(
                [str(self._binaries / program), *arguments],
                # PGDATA, PGOPTIONS and similar variables are meant for other servers.
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
                account=self._account,
                cwd=self._directory,
                stdin=stdin or subprocess.DEVNULL,
                output=log,
                death_signal=signal.SIGQUIT,  # the server shuts down immediately
                own_session=True,  # a Ctrl-C is for the command, which may still need the server to end
            )


def utf8_locale() -> str:
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        return "C"
    return "C.UTF-8"


if __name__ == "__main__":
    sys.exit(main())
