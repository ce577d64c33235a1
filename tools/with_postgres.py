"""Run a command with a PostgreSQL server of its own, and leave nothing behind.

    python tools/with_postgres.py [--durable] -- command arguments…

The URL of the database is in WINDLASS_TEST_POSTGRES_URL. If that variable is already set, the command runs with it.
Otherwise this program makes a fresh cluster in a temporary directory, runs its server on a free port of 127.0.0.1 while
the command runs, then stops the server and removes the directory. The exit code is the command's.

Two rules make sure that nothing is left behind:

* Signals stay blocked, and are read only where this program waits. So no signal interrupts a clean-up half-way, and
each
  wait decides what a signal does: during the set-up it ends the program, and while the command runs it is passed on to
  the command.
* If SIGKILL ends this program, the kernel ends the server by its parent-death signal. The sweeper, a process that waits
  for its standard input to close, removes the directory.
"""

from __future__ import annotations

import argparse
import ctypes
import locale
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

URL_VARIABLE = "WINDLASS_TEST_POSTGRES_URL"
NAME = "windlass"  # of the superuser and of the database

START_LIMIT = 60.0  # seconds until the server must accept connections
START_POLL = 0.05  # seconds between two checks of a starting server
STOP_LIMIT = 10.0  # seconds for a fast shutdown, and again for an immediate one
LOG_TAIL = 30  # last lines of the log that an error message shows
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 4 << 30  # free bytes that MEMORY must have
TEMPORARY_ROOT_LENGTH = 64  # bytes; the whole path of a Unix socket has at most 107

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
PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
AWAITED = frozenset({signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM})

# A server that is shutting down may still write into the directory, so the removal is repeated.
SWEEP = 'cat; for _ in $(seq 50); do rm -rf "$1"; [ -e "$1" ] || exit 0; sleep 0.2; done; exit 1'


class UnavailableError(Exception):
    """There is no PostgreSQL for the command; the message names what to do."""


class StoppedError(Exception):
    """A signal ended this program before the command ran."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command with a private PostgreSQL server.")
    parser.add_argument("--durable", action="store_true", help="leave fsync and full_page_writes on")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    arguments = parser.parse_args()
    if shutil.which(arguments.command[0]) is None:
        return print_error(f"{arguments.command[0]}: command not found", code=127)
    if os.environ.get(URL_VARIABLE):
        os.execvp(arguments.command[0], arguments.command)
    if sys.platform != "linux":
        return print_error(f"A private PostgreSQL needs Linux; set {URL_VARIABLE}.", code=os.EX_UNAVAILABLE)

    hold_signals()
    try:
        binaries = find_binaries() or install_binaries()
        account = server_account()
        with (
            private_directory(account, memory=not arguments.durable) as directory,
            PrivateServer(binaries, directory, account, durable=arguments.durable) as url,
        ):
            return run(arguments.command, url)
    except UnavailableError as problem:
        return print_error(str(problem), code=os.EX_UNAVAILABLE)
    except StoppedError as stopped:
        return print_error(str(stopped), code=128 + stopped.signum)


def print_error(message: str, *, code: int) -> int:
    print(f"with_postgres: {message}", file=sys.stderr)
    return code


def hold_signals() -> None:
    """Block the signals that this program waits for, except those that its parent has set to be ignored (nohup)."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, the kernel would drop the exit codes
    held = {signum for signum in AWAITED if signal.getsignal(signum) != signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    for signum in held:
        signal.signal(signum, signal.SIG_DFL)  # Python's handler would drop a signal in a child before its exec


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
    print_error("no PostgreSQL server is installed; installing the package postgresql", code=0)
    if not CREATECLUSTER_CONF.exists():
        # Otherwise the package would also make a cluster for the whole machine and start it.
        CREATECLUSTER_CONF.parent.mkdir(parents=True, exist_ok=True)
        CREATECLUSTER_CONF.write_text("create_main_cluster = false\n")
    run_apt("postgresql")
    if (binaries := find_binaries()) is None:
        raise UnavailableError("The package postgresql is installed, but it contains no server.")
    return binaries


def install_package(name: str, what: str, why: str) -> None:
    """Install a Debian package as root; any other account is told its name."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnavailableError(f"{what} is not installed, and {why}. On Debian: sudo apt-get install {name}")
    print_error(f"{what} is not installed; installing the package {name}", code=0)
    run_apt(name)


def run_apt(package: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Two installations may meet: each waits for the other's lock.
    wait = ["-o", "DPkg::Lock::Timeout=600"]
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", package]):
        # apt-get is not interrupted: half an installation would leave a broken machine.
        code = spawn(["apt-get", *wait, *arguments], env=environment, death_signal=None).wait()
        pause(0)
        if code != 0:
            raise UnavailableError(f"apt-get {arguments[0]} failed with exit code {code}.")


def server_account() -> pwd.struct_passwd | None:
    """The account of the server: PostgreSQL refuses to run as root. None: the account of this program."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


@contextmanager
def private_directory(account: pwd.struct_passwd | None, *, memory: bool = False) -> Iterator[Path]:
    """A temporary directory; in memory if `memory` is set and the machine has enough."""
    root = MEMORY if memory and has_memory() else temporary_root(account)
    directory = Path(tempfile.mkdtemp(prefix="windlass-", dir=root))
    # In its own session, because a Ctrl-C in the terminal must not end the sweeper.
    sweeper = subprocess.Popen(
        ["/bin/sh", "-c", SWEEP, "sweeper", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        if account is not None:
            os.chown(directory, account.pw_uid, account.pw_gid)
        yield directory
    finally:
        sweeper.communicate()  # closes the sweeper's standard input
        if sweeper.returncode != 0:
            print_error(f"could not remove {directory}", code=0)


def has_memory() -> bool:
    """Whether files can be kept in memory. A TMPDIR set by the user takes precedence."""
    if os.environ.get("TMPDIR") or not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED


def temporary_root(account: pwd.struct_passwd | None) -> Path:
    """A directory for temporary files that the server's account can open, with a path short enough for a socket."""
    for path in (Path(name).resolve() for name in (tempfile.gettempdir(), "/tmp", "/var/tmp")):
        open_to_all = all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))
        if (account is None or open_to_all) and len(os.fsencode(path)) <= TEMPORARY_ROOT_LENGTH:
            return path
    raise UnavailableError("Set TMPDIR to a directory that has a short path and is open to every account.")


class PrivateServer:
    """A fresh cluster with an empty database. Entering starts the server and returns its URL, leaving stops it."""

    def __init__(self, binaries: Path, directory: Path, account: pwd.struct_passwd | None, *, durable: bool) -> None:
        self._binaries = binaries
        self._directory = directory
        self._data = directory / "data"
        self._log = directory / "log"
        self._account = account
        settings = SETTINGS if durable else SETTINGS | NOT_DURABLE
        self._options = [f"--{name}={value}" for name, value in settings.items()]

    def __enter__(self) -> str:
        self._make_cluster()
        self._make_database()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        address = ["-h", "127.0.0.1", "-p", str(port), "-k", str(self._directory)]
        self._server = self._spawn("postgres", "-D", str(self._data), *address, *self._options)
        try:
            self._wait_until_ready()
        except BaseException:
            self._stop()
            raise
        return f"postgresql://{NAME}@127.0.0.1:{port}/{NAME}"

    def __exit__(self, *_: object) -> None:
        if self._server.poll() is not None:
            print_error(self._with_log("the server ended before the command did"), code=0)
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
            raise UnavailableError(self._with_log(f"{program} failed with exit code {child.returncode}"))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while not self._accepts_connections():
            if self._server.poll() is not None:
                raise UnavailableError(self._with_log("the server did not start"))
            if time.monotonic() > deadline:
                raise UnavailableError(self._with_log(f"the server was not ready after {START_LIMIT:.0f} s"))
            pause(START_POLL)

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

    def _with_log(self, message: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_TAIL:]
        return "\n    ".join([f"{message}; its log ends with:", *lines])


def utf8_locale() -> str:
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        return "C"
    return "C.UTF-8"


def run(command: Sequence[str], url: str, variable: str = URL_VARIABLE) -> int:
    """Run the command to its end, pass signals on to it, and return its exit code as a shell would."""
    pause(0)  # the last chance to stop without starting the command
    child = spawn(command, env={**os.environ, variable: url}, death_signal=signal.SIGTERM)
    while (code := child.poll()) is None:
        received = signal.sigwaitinfo(AWAITED)
        # A positive code means that the kernel sent the signal. A Ctrl-C goes to the terminal's whole foreground group:
        # the command has already received it, and a second one would disturb its clean-up.
        ctrl_c = received.si_signo == signal.SIGINT and received.si_code > 0
        if received.si_signo != signal.SIGCHLD and not ctrl_c:
            child.send_signal(received.si_signo)
    return code if code >= 0 else 128 - code


def pause(limit: float) -> None:
    """Wait until a child changes, or for `limit` seconds; a signal to stop raises StoppedError.

    In a thread of another program, as in a test run, that program handles the signals.
    """
    if threading.current_thread() is not threading.main_thread():
        time.sleep(limit)
        return
    received = signal.sigtimedwait(AWAITED, limit)
    if received is not None and received.si_signo != signal.SIGCHLD:
        raise StoppedError(received.si_signo)


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    death_signal: signal.Signals | None,
    account: pwd.struct_passwd | None = None,
    cwd: Path | None = None,
    stdin: IO[bytes] | int | None = None,
    output: IO[bytes] | None = None,
    own_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a child with unblocked signals, which gets the death signal when this program has ended."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        if death_signal is not None:
            prctl(PR_SET_PDEATHSIG, death_signal)
            if os.getppid() != parent:  # the parent ended before prctl
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)

    return subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=output,
        stderr=output,
        start_new_session=own_session,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
        # It runs after the change of user, which would have cleared the parent-death signal.
        preexec_fn=prepare,
    )


if __name__ == "__main__":
    sys.exit(main())
