"""What the programs that run a private server share: they start it, run a command, and leave nothing behind.

Two rules make sure of that:

* Signals stay blocked, and are read only where this program waits. So no signal interrupts a clean-up half-way, and
  each wait decides what a signal does: during the set-up it ends the program, and while the command runs it is passed
  on to the command.
* If SIGKILL ends this program, the kernel ends the server by its parent-death signal. The sweeper, a process that waits
  for its standard input to close, removes the directory.
"""

from __future__ import annotations

import ctypes
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
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

STOP_LIMIT = 10.0  # seconds for a server to shut down, then SIGKILL
LOG_TAIL = 30  # last lines of the log that an error message shows
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 4 << 30  # free bytes that MEMORY must have
TEMPORARY_ROOT_LENGTH = 64  # bytes; the whole path of a Unix socket has at most 107
POLICY = Path("/usr/sbin/policy-rc.d")  # Debian asks this program before it starts a service

PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
AWAITED = frozenset({signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM})

# A server that is shutting down may still write into the directory, so the removal is repeated.
SWEEP = 'cat; for _ in $(seq 50); do rm -rf "$1"; [ -e "$1" ] || exit 0; sleep 0.2; done; exit 1'


class UnavailableError(Exception):
    """There is no server for the command; the message names what to do."""


class StoppedError(Exception):
    """A signal ended this program before the command ran."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


def run_with(
    start: Callable[[], AbstractContextManager[str]], command: Sequence[str], *, variable: str, what: str
) -> int:
    """Run a command with a server, whose URL is in the variable; returns the exit code of this program.

    If the variable is already set, the command runs with it, and in the place of this program.
    """
    if shutil.which(command[0]) is None:
        print_note(f"{command[0]}: command not found")
        return 127
    if os.environ.get(variable):
        os.execvp(command[0], list(command))
    try:
        if sys.platform != "linux":
            raise UnavailableError(f"A private {what} needs Linux; set {variable}.")
        hold_signals()
        with start() as url:
            return run(command, url, variable)
    except UnavailableError as problem:
        print_note(str(problem))
        return os.EX_UNAVAILABLE
    except StoppedError as stopped:
        print_note(str(stopped))
        return 128 + stopped.signum


def print_note(message: str) -> None:
    print(f"{Path(sys.argv[0]).stem}: {message}", file=sys.stderr)


def hold_signals() -> None:
    """Block the signals that this program waits for, except those that its parent has set to be ignored (nohup)."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, the kernel would drop the exit codes
    held = {signum for signum in AWAITED if signal.getsignal(signum) != signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    for signum in held:
        signal.signal(signum, signal.SIG_DFL)  # Python's handler would drop a signal in a child before its exec


def install_package(name: str, what: str, why: str) -> None:
    """Install a Debian package as root; any other account is told its name."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnavailableError(f"{what} is not installed, and {why}. On Debian: sudo apt-get install {name}")
    print_note(f"{what} is not installed; installing the package {name}")
    with no_service():
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


@contextmanager
def no_service() -> Iterator[None]:
    """Keep Debian's package from starting a server for the whole machine."""
    if os.geteuid() != 0 or POLICY.exists():  # the machine has a policy of its own
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")  # 101: not allowed
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


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
            print_note(f"could not remove {directory}")


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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_until_ready(
    answers: Callable[[], bool], server: subprocess.Popen[bytes], *, limit: float, log: Path, poll: float = 0.05
) -> None:
    """Wait until a server answers; raises UnavailableError with the end of its log when it does not."""
    deadline = time.monotonic() + limit
    while not answers():
        if server.poll() is not None:
            raise UnavailableError(with_log("the server did not start", log))
        if time.monotonic() > deadline:
            raise UnavailableError(with_log(f"the server was not ready after {limit:.0f} s", log))
        pause(poll)


def with_log(message: str, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL:]
    return "\n    ".join([f"{message}; its log ends with:", *lines])


def run(command: Sequence[str], url: str, variable: str) -> int:
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
