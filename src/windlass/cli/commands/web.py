"""`windlass web`: the dashboard, and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.parse.complete import complete_program
from windlass.cli.parse.store_option import app_option_as, url_option
from windlass.cli.show.output import print_note
from windlass.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    import socket
    from urllib.parse import SplitResult

    from windlass.app import Windlass

PORT = 8117
LOOPBACK = "127.0.0.1"
TRIED = 20  # ports for which `windlass dev` looks whether they are free
INSTALL = "the dashboard and the HTTP API need FastAPI and uvicorn; install them: pip install 'windlass[web]'"


@click.command(short_help="Serve the dashboard and the HTTP API.")
@click.argument("target", metavar="[APP]", required=False, shell_complete=complete_program)
@app_option_as("named")
@url_option
@click.option("--host", default=LOOPBACK, show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="0 takes a free one.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name in URLs that lead here; may be repeated.")
@click.option("--public-url", metavar="URL", help="What users type, behind a proxy: https://jobs.example.org/jobs.")
def web(
    target: str | None,
    named: str | None,
    url: str | None,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    public_url: str | None,
) -> None:
    """Serve the dashboard for people, and the HTTP API for other programs.

    APP is a program such as app.py. Without one, the API serves the database of --url or WINDLASS_URL, and checks new
    jobs by the types that workers have announced.

    On a loopback address no token is needed until the first one is created. An address that other machines can reach
    needs a token: windlass token create NAME --role admin.

    Behind a proxy, --public-url allows its host, marks the cookie Secure where it is https, and puts its path in front
    of the addresses in answers: the proxy takes that path off each request.
    """
    import asyncio
    import signal

    from windlass.observe.logs import set_up

    check_installed()
    from windlass.web.server import ApiServer, address, check_bind, listen

    set_up("WARNING")
    app = load_app(target or named, url)
    _check_schema(app)
    local = check_bind(app, host)
    listening = listen(host, port)
    public = read_public_url(public_url)
    server = ApiServer(
        app,
        hosts=(host, *allow_host, *filter(None, [public.hostname])),
        local=local,
        secure=public.scheme == "https",
        root_path=public.path.rstrip("/"),
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn has its own meanwhile, and repeats the signal to these
        signal.signal(number, server.handle_exit)
    link = (public_url or address(host, listening)).rstrip("/")
    click.echo(f"the dashboard is at {link}, its HTTP API at {link}/api/v1; end it with Ctrl-C", err=True)
    try:
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        app.close()


def read_public_url(text: str | None) -> SplitResult:
    """The parts of --public-url; without one they are empty. Raises ConfigError."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text or "")
        host = parts.hostname
    except ValueError:
        raise ConfigError(
            f"--public-url {text!r} is no URL; write it as users type it: https://jobs.example.org/jobs"
        ) from None
    if text is not None and (parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment):
        raise ConfigError(f"--public-url {text!r} is no URL; write it as users type it: https://jobs.example.org/jobs")
    return parts


def is_installed() -> bool:
    """Whether the extra `web` is installed."""
    from importlib.util import find_spec

    return find_spec("fastapi") is not None and find_spec("uvicorn") is not None


def check_installed() -> None:
    """Raise ConfigError unless the extra `web` is installed."""
    if not is_installed():
        raise ConfigError(INSTALL)


def take_port(wanted: int | None) -> socket.socket:
    """A socket that listens on the wanted port, or else on the first free one from PORT on.

    It is taken at once and kept: of two programs that start at a time, the second takes the next port.
    """
    from windlass.web.server import open_socket

    for port in [wanted] if wanted is not None else range(PORT, PORT + TRIED):
        try:
            return open_socket(LOOPBACK, port)
        except OSError:
            continue
    raise ConfigError(f"port {wanted or PORT} is taken; name a free one: --port PORT, or leave the API out: --no-web")


def _check_schema(app: Windlass) -> None:
    """Raise where the schema is missing or another one. A database that does not answer may come back: it is told."""
    try:
        app.has_tokens()
    except StoreUnavailable as error:
        print_note(str(error))


def load_app(target: str | None, url: str | None) -> Windlass:
    """The program, or an app without job types on the database of --url or WINDLASS_URL."""
    from windlass.app import Windlass
    from windlass.cli.parse.store_option import load_settings
    from windlass.declare.program import load

    if target is not None and url is None:
        return load(target)
    app = Windlass(url)
    if url is not None:  # a direct URL in the environment belongs to another database
        app.settings = app._client.settings = load_settings(url, None)
    return app
