"""Run a command with a RabbitMQ server of its own, and leave nothing behind.

    python tools/with_rabbitmq.py -- command arguments…

The URL is in WINDLASS_TEST_AMQP_URL. If that variable is already set, the command runs with it. Otherwise this program
runs a node on free ports of 127.0.0.1, with its own name, cookie, directories and Erlang port mapper, while the command
runs. The exit code is the command's.

Tests also use `RabbitServer` from here: a server that they kill and start again.
"""

from __future__ import annotations

import argparse
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from private_server import (
    UnavailableError,
    free_port,
    install_package,
    private_directory,
    run_with,
    spawn,
    wait_until_ready,
)

URL_VARIABLE = "WINDLASS_TEST_AMQP_URL"
PACKAGE = "rabbitmq-server"
PROGRAMS = Path("/usr/lib/rabbitmq/bin")  # those on the PATH are Debian's, and use the machine's own node
USER, PASSWORD = "windlass", "windlass"
START_LIMIT = 120.0  # seconds until a server must answer
STOP_LIMIT = 15.0  # seconds for a shutdown, then SIGKILL

# Erlang's threads wait for work by spinning, which takes the cores from the tests.
ERLANG = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -rabbit quorum_tick_interval 1000"
CONFIGURATION = f"""\
default_user = {USER}
default_pass = {PASSWORD}
disk_free_limit.absolute = 50MB
log.console = true
log.console.level = warning
log.file = false
"""
CONFIGURATION_OF_MANAGEMENT = """\
management.tcp.ip = 127.0.0.1
management.tcp.port = {port}
collect_statistics_interval = 1000
"""
CONFIGURATION_OF_TLS = """\
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.certfile = {tls}/cert.pem
ssl_options.keyfile = {tls}/key.pem
ssl_options.verify = verify_none
ssl_options.fail_if_no_peer_cert = false
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command with a private RabbitMQ server.")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")

    @contextmanager
    def start() -> Iterator[str]:
        with private_rabbitmq() as server:
            yield server.url

    return run_with(start, parser.parse_args().command, variable=URL_VARIABLE, what="RabbitMQ")


def find_programs() -> Path:
    """The directory of the server's programs; Debian's package is installed where it is missing."""
    if not (PROGRAMS / "rabbitmq-server").exists():
        install_package(PACKAGE, "A RabbitMQ server", f"the tests need one, or {URL_VARIABLE}")
    if not (PROGRAMS / "rabbitmq-server").exists():
        raise UnavailableError(f"The package {PACKAGE} is installed, but it contains no server.")
    return PROGRAMS


def server_account() -> pwd.struct_passwd | None:
    """The account of the server; None: the account of this program."""
    return pwd.getpwnam("rabbitmq") if os.geteuid() == 0 else None


@contextmanager
def private_rabbitmq(*, tls: Path | None = None, management: bool = False) -> Iterator[RabbitServer]:
    """A running server in a directory of its own; `tls`: a directory with cert.pem and key.pem."""
    programs = find_programs()
    account = server_account()
    with (
        private_directory(account, memory=True) as directory,
        RabbitServer(programs, directory, account, tls=tls, management=management) as server,
    ):
        yield server


class RabbitServer:
    """One node on 127.0.0.1. Entering starts it, leaving stops it; it keeps ports and files when it starts again."""

    def __init__(
        self,
        programs: Path,
        directory: Path,
        account: pwd.struct_passwd | None,
        *,
        tls: Path | None = None,
        management: bool = False,
    ) -> None:
        self._programs = programs
        self._directory = directory
        self._account = account
        self._log = directory / "log"
        self.port, ports, mapper = free_port(), free_port(), free_port()
        self.url = f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}"
        self._mapper_port = mapper
        self._configuration = CONFIGURATION
        if tls is not None:
            tls_port = free_port()
            self.tls_url = f"amqps://{USER}:{PASSWORD}@127.0.0.1:{tls_port}"
            self._configuration += CONFIGURATION_OF_TLS.format(port=tls_port, tls=tls)
        self._plugins = "[].\n"
        if management:
            self.management_port = free_port()
            self._configuration += CONFIGURATION_OF_MANAGEMENT.format(port=self.management_port)
            self._plugins = "[rabbitmq_management].\n"
        inherited = ("RABBITMQ", "ERL_", "ERLANG")  # meant for other nodes
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(inherited)},
            "HOME": str(directory),  # of the cookie
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"windlass-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(ports),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "logs"),
            "RABBITMQ_SCHEMA_DIR": str(directory / "schema"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "none.config"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
        }

    def __enter__(self) -> RabbitServer:
        (self._directory / "rabbitmq.conf").write_text(self._configuration)
        (self._directory / "enabled_plugins").write_text(self._plugins)
        # Erlang would start the mapper as a daemon that outlives the server: so it is there before the server looks.
        self._mapper = self._spawn("epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1")
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._mapper.kill()
        self._mapper.wait()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._server = self._spawn(str(self._programs / "rabbitmq-server"))
        wait_until_ready(self._answers, self._server, limit=START_LIMIT, log=self._log)

    def stop(self) -> None:
        """Shut the server down; after a while, kill it."""
        if self._server.poll() is None:
            self._server.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(STOP_LIMIT)
        self.kill()

    def kill(self) -> None:
        """End the server's processes as a loss of power would. They are one session, and the mapper is not in it."""
        with suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()

    def settle(self) -> None:
        """Have the server write down which queues it has. RabbitMQ 3 does that seconds later; a quorum queue that was
        made just before a kill has no leader afterwards."""
        self.control("eval", "[dets:sync(Table) || Table <- dets:all()].")

    def forget_members(self) -> None:
        """While it is killed: take the file that `settle` completes. Its quorum queues have no leader afterwards."""
        (file,) = (self._directory / "data").glob("*/quorum/*/names.dets")
        file.unlink()

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on this server; it takes a second or two."""
        command = [str(self._programs / "rabbitmqctl"), "--quiet", *arguments]
        answer = subprocess.run(
            command,
            env=self._environment,
            cwd=self._directory,
            capture_output=True,
            text=True,
            check=False,
            user=self._account.pw_uid if self._account else None,
            group=self._account.pw_gid if self._account else None,
        )
        if answer.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {arguments[0]} failed: {answer.stdout}{answer.stderr}")
        return answer.stdout

    def _answers(self) -> bool:
        """Whether the server answers to the header of the protocol: it listens when it has started everything."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(connection.recv(1))
        except OSError:
            return False

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return spawn(
                command,
                env=self._environment,
                account=self._account,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                output=log,
                death_signal=signal.SIGTERM,  # the script that starts the server passes it on
                own_session=True,
            )


if __name__ == "__main__":
    sys.exit(main())
