"""Run a command with a Redis server of its own, and leave nothing behind.

    python tools/with_redis.py [--durable] -- command arguments…

The URL is in WINDLASS_TEST_REDIS_URL. If that variable is already set, the command runs with it. Otherwise this program
runs a server on a free port of 127.0.0.1, in a temporary directory, while the command runs. The server keeps nothing on
disk unless --durable asks for an append-only file. The exit code is the command's.

Tests also use `RedisServer` and `RedisSentinel` from here: a server that they kill and start again, with a replica
and a sentinel where the story needs them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from with_postgres import StoppedError, UnavailableError, hold_signals, install_package, private_directory, run, spawn

URL_VARIABLE = "WINDLASS_TEST_REDIS_URL"
START_LIMIT = 60.0  # seconds until a server must answer
STOP_LIMIT = 10.0  # seconds for a shutdown, then SIGKILL
LOG_TAIL = 30  # last lines of the log that an error message shows
DATABASES = 1000  # stories that share one server take a database each
POLICY = Path("/usr/sbin/policy-rc.d")  # Debian asks this program before it starts a service


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command with a private Redis server.")
    parser.add_argument("--durable", action="store_true", help="keep an append-only file")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    arguments = parser.parse_args()
    if shutil.which(arguments.command[0]) is None:
        return print_error(f"{arguments.command[0]}: command not found", code=127)
    if os.environ.get(URL_VARIABLE):
        os.execvp(arguments.command[0], arguments.command)
    if sys.platform != "linux":
        return print_error(f"A private Redis needs Linux; set {URL_VARIABLE}.", code=os.EX_UNAVAILABLE)
    hold_signals()
    try:
        with private_redis(durable=arguments.durable) as server:
            return run(arguments.command, server.url, variable=URL_VARIABLE)
    except UnavailableError as problem:
        return print_error(str(problem), code=os.EX_UNAVAILABLE)
    except StoppedError as stopped:
        return print_error(str(stopped), code=128 + stopped.signum)


def print_error(message: str, *, code: int) -> int:
    print(f"with_redis: {message}", file=sys.stderr)
    return code


def find_server() -> str:
    """The path of redis-server; Debian's package is installed where it is missing."""
    if shutil.which("redis-server") is None:
        with no_service():
            install_package("redis-server", "A Redis server", f"the tests need one, or {URL_VARIABLE}")
    server = shutil.which("redis-server")
    if server is None:
        raise UnavailableError("The package redis-server is installed, but it contains no server.")
    return server


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
def private_redis(*, durable: bool = False, password: str | None = None) -> Iterator[RedisServer]:
    """A running server in a directory of its own."""
    with private_directory(None, memory=not durable) as directory:
        server = RedisServer(directory, durable=durable, password=password)
        with server:
            yield server


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class RedisServer:
    """One redis-server on 127.0.0.1. Entering starts it, leaving stops it; it keeps its port when it starts again."""

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = False,
        password: str | None = None,
        replica_of: RedisServer | None = None,
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        self.directory = directory / f"redis-{self.port}"
        self._password = password
        self._log = self.directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.directory),
            "databases": str(DATABASES),
            "appendonly": "yes" if durable else "no",
            "save": "",
        }
        if password:
            self._options |= {"requirepass": password, "masterauth": password}
        if replica_of:
            self._options |= {"replicaof": f"127.0.0.1 {replica_of.port}", "repl-diskless-sync-delay": "0"}

    @property
    def url(self) -> str:
        secret = f":{self._password}@" if self._password else ""
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and wait until the server answers."""
        self.directory.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            self._process = spawn(
                self._command(),
                env=os.environ,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                output=log,
                death_signal=signal.SIGKILL,
                own_session=True,  # a Ctrl-C is for the command, which may still need the server to end
            )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def _command(self) -> Sequence[str]:
        return [find_server(), *(part for name, value in self._options.items() for part in (f"--{name}", value))]

    def stop(self) -> None:
        """Let the server shut down; what it was asked to keep is on disk then."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9: nothing more is written, no connection is closed in order."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """The server keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, signum: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(signum)
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_LIMIT
        while not self._answers():
            if process.poll() is not None:
                raise UnavailableError(self._with_log("the server did not start"))
            if time.monotonic() > deadline:
                raise UnavailableError(self._with_log(f"the server was not ready after {START_LIMIT:.0f} s"))
            time.sleep(0.01)

    def _answers(self) -> bool:
        """A server that loads its file answers -LOADING, and one with a password -NOAUTH."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def _with_log(self, message: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_TAIL:]
        return "\n    ".join([f"{message}; its log ends with:", *lines])


class RedisSentinel(RedisServer):
    """One sentinel, a quorum by itself: it makes a replica the primary two seconds after the primary fell silent."""

    def __init__(self, directory: Path, primary: RedisServer, *, name: str = "windlass") -> None:
        super().__init__(directory)
        self._name = name
        self._primary = primary

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/{self._name}/0"

    def _command(self) -> Sequence[str]:
        settings = self.directory / "sentinel.conf"
        if not settings.exists():  # the sentinel rewrites it, and reads its own notes when it starts again
            lines = [
                f"port {self.port}",
                "bind 127.0.0.1",
                f"dir {self.directory}",
                f"sentinel monitor {self._name} 127.0.0.1 {self._primary.port} 1",
                f"sentinel down-after-milliseconds {self._name} 2000",
                f"sentinel failover-timeout {self._name} 10000",
            ]
            settings.write_text("\n".join(lines) + "\n")
        return [find_server(), str(settings), "--sentinel"]


if __name__ == "__main__":
    sys.exit(main())
