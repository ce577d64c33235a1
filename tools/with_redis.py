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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from private_server import (
    STOP_LIMIT,
    UnavailableError,
    free_port,
    install_package,
    private_directory,
    run_with,
    spawn,
    wait_until_ready,
)

URL_VARIABLE = "WINDLASS_TEST_REDIS_URL"
START_LIMIT = 60.0  # seconds until a server must answer
DATABASES = 1000  # stories that share one server take a database each


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command with a private Redis server.")
    parser.add_argument("--durable", action="store_true", help="keep an append-only file")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    arguments = parser.parse_args()

    @contextmanager
    def start() -> Iterator[str]:
        with private_redis(durable=arguments.durable) as server:
            yield server.url

    return run_with(start, arguments.command, variable=URL_VARIABLE, what="Redis")


def find_server() -> str:
    """The path of redis-server; Debian's package is installed where it is missing."""
    if shutil.which("redis-server") is None:
        install_package("redis-server", "A Redis server", f"the tests need one, or {URL_VARIABLE}")
    server = shutil.which("redis-server")
    if server is None:
        raise UnavailableError("The package redis-server is installed, but it contains no server.")
    return server


@contextmanager
def private_redis(*, durable: bool = False, password: str | None = None) -> Iterator[RedisServer]:
    """A running server in a directory of its own."""
    with private_directory(None, memory=not durable) as directory:
        server = RedisServer(directory, durable=durable, password=password)
        with server:
            yield server


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
        tls: Path | None = None,
    ) -> None:
        """`tls`: a directory with cert.pem and key.pem; the server then speaks nothing else."""
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
        self._scheme = "redis"
        if tls:
            self._scheme = "rediss"
            self._options |= {"port": "0", "tls-port": str(self.port), "tls-auth-clients": "no"}
            self._options |= {"tls-cert-file": str(tls / "cert.pem"), "tls-key-file": str(tls / "key.pem")}
        if replica_of:
            self._options |= {"replicaof": f"127.0.0.1 {replica_of.port}", "repl-diskless-sync-delay": "0"}

    @property
    def url(self) -> str:
        secret = f":{self._password}@" if self._password else ""
        return f"{self._scheme}://{secret}127.0.0.1:{self.port}/0"

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
            wait_until_ready(self._answers, self._process, limit=START_LIMIT, log=self._log, poll=0.01)
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

    def _answers(self) -> bool:
        """A server that loads its file answers -LOADING, and one with a password -NOAUTH."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                if self._scheme == "rediss":
                    return True
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


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
