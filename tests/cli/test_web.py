"""`windlass web` and the link of `windlass dev`: who may reach the HTTP API, how it starts, and how it ends."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from .conftest import APP, PATIENCE, Running, Start
from .conftest import Windlass as Command

ANSWERS = r"the dashboard is at https?://[^ ]+, its HTTP API at (https?://[^ ]+); end it with Ctrl-C$"
LINK = r"^HTTP API: (http://127\.0\.0\.1:\d+/api/v1)$"
HIDDEN = """
import sys
sys.modules["{missing}"] = None
"""


def serve(start: Start, *arguments: str, **environment: str) -> tuple[Running, str]:
    """A server on a free port, and its address."""
    web = start("web", *arguments, "--port", "0", **environment)
    return web, web.expect(ANSWERS)[1]


def get(url: str, token: str = "", **headers: str) -> httpx.Response:
    sent = {**headers, "authorization": f"Bearer {token}"} if token else headers
    return httpx.get(url, headers=sent, timeout=PATIENCE)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_it_serves_a_program_until_it_is_asked_to_stop(windlass: Command, start: Start) -> None:
    """Given two servers with an open stream and one that has just started, each ends at its signal with exit 0."""
    windlass("migrate", "app.py")
    numbers = (signal.SIGINT, signal.SIGTERM)
    begun = [start("web", "app.py", "--port", "0") for _ in numbers]
    for web, number in zip(begun, numbers, strict=True):
        url = web.expect(ANSWERS)[1]
        accepted = httpx.post(f"{url}/jobs", json={"type": "add", "input": {"a": 2, "b": 3}}, timeout=PATIENCE)
        assert accepted.status_code == 202
        with httpx.stream("GET", f"{url}/stream?list=overview", timeout=PATIENCE) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("event")) == "event: snapshot"
            web.signal(number)
            assert list(lines) != []  # the rest of the snapshot; it ends without an error
        assert web.wait() == 0
        assert "Traceback" not in web.output
        assert accepted.json()["id"] in windlass("jobs", "list").stdout


def test_a_signal_right_after_the_start_ends_it_with_0(windlass: Command, start: Start) -> None:
    windlass("migrate", "app.py")
    web, _ = serve(start, "app.py")

    web.signal(signal.SIGTERM)

    assert web.wait() == 0
    assert "Traceback" not in web.output


def test_the_first_token_opens_a_server_to_others_and_closes_one_on_loopback(windlass: Command, start: Start) -> None:
    """Given a server that needs no token, when the first one is created, then all servers ask for one."""
    windlass("migrate", "app.py")
    refused = start("web", "app.py", "--host", "0.0.0.0", "--port", "0")
    _, url = serve(start, "app.py", "--allow-host", "jobs.example.org", "--allow-host", "b.example.org")
    assert refused.wait() == 2
    assert "create one first: windlass token create NAME --role admin" in refused.output
    assert get(f"{url}/session").json()["role"] == "admin"
    look_at_host_names(url)

    secret = windlass("token", "create", "ci", "--role", "admin").stdout.strip()

    both = [start("web", "app.py", "--host", host, "--port", "0") for host in ("0.0.0.0", "127.0.0.1")]
    for web in both:
        again = web.expect(ANSWERS)[1].replace("0.0.0.0", "127.0.0.1")
        assert get(f"{again}/session").status_code == get(f"{again}/counts").status_code == 401
        who = get(f"{again}/session", secret).json()
        assert (who["name"], who["role"], who["tenant"]) == ("ci", "admin", None)
        assert get(f"{again}/counts", secret).status_code == 200


def look_at_host_names(url: str) -> None:
    """Other names are refused unless they are allowed."""
    codes = {
        host: get(f"{url}/openapi.json", host=host).status_code
        for host in ("jobs.example.org", "B.example.org:8117", "localhost", "evil.example", "")
    }

    assert codes == {
        "jobs.example.org": 200, "B.example.org:8117": 200, "localhost": 200, "evil.example": 421, "": 421,
    }  # fmt: skip


def test_behind_a_proxy_it_answers_for_the_public_address_alone(windlass: Command, start: Start) -> None:
    """Given --public-url https://jobs.example.org/board, the proxy sends paths without /board and the user's Host."""
    windlass("migrate", "app.py")
    secret = windlass("token", "create", "ann", "--role", "viewer").stdout.strip()
    public = ("--public-url", "https://jobs.example.org/board")
    web = start("web", "app.py", "--host", "127.0.0.1", "--port", str(port := free_port()), *public)
    assert web.expect(ANSWERS)[1] == "https://jobs.example.org/board/api/v1"
    own = f"http://127.0.0.1:{port}"

    with httpx.Client(base_url=own, headers={"host": "jobs.example.org"}, timeout=PATIENCE) as proxy:
        page = proxy.get("/jobs", headers={"accept": "text/html"})
        begun = proxy.post("/api/v1/session", json={"token": secret})
        foreign = proxy.get("/api/v1/session", headers={"host": "evil.example.org"})

    assert '<base href="/board/">' in page.text
    assert foreign.status_code == 421
    assert {"Secure", "HttpOnly", "Path=/board"} <= set(begun.headers["set-cookie"].split("; "))
    for wrong in ("jobs.example.org", "ftp://jobs.example.org", "https://jobs.example.org/?a=b", "https://["):
        refused = windlass("web", "app.py", "--port", "0", "--public-url", wrong)
        assert (refused.returncode, "write it as users type it" in refused.stderr) == (2, True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_a_taken_port_is_answered_with_the_next_one(windlass: Command, taken: int) -> None:
    windlass("migrate", "app.py")

    refused = windlass("web", "app.py", "--port", str(taken))

    assert refused.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {taken}: Address already in use" in refused.stderr
    assert f"--port {taken + 1}" in refused.stderr


def test_without_a_program_the_announced_types_are_served(windlass: Command, start: Start, program_dir: Path) -> None:
    """Given a worker that has announced its types, then a server that has only the database checks jobs by them."""
    dev = start("dev", "app.py", "--no-web")
    dev.expect("works on")
    assert windlass("run", "app:add", "2", "3").stdout == "5\n"  # the worker has started, and so announced its types
    _, url = serve(start, "--url", f"sqlite:///{program_dir}/windlass.db")

    def post(**input: Any) -> httpx.Response:
        return httpx.post(f"{url}/jobs", json={"type": "greet", "input": input}, timeout=PATIENCE)

    accepted, refused = post(name="ann"), post(name=7)

    result = httpx.get(f"{url}/jobs/{accepted.json()['id']}/result?timeout=60", timeout=2 * PATIENCE).json()
    assert (result["ended"], result["output"]) == (True, "hello ann")
    assert (refused.status_code, refused.json()["path"]) == (422, "$.input.name")


def test_a_database_without_the_schema_is_named_before_it_serves(windlass: Command, program_dir: Path) -> None:
    refused = windlass("web", "app.py", "--port", "0")

    assert refused.returncode == 2
    assert "windlass migrate" in refused.stderr
    assert "answers at" not in refused.stderr


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_without_the_extra_the_line_to_install_it_is_printed(
    windlass: Command, start: Start, program_dir: Path, missing: str
) -> None:
    (program_dir / "bare").mkdir()
    (program_dir / "bare" / "sitecustomize.py").write_text(HIDDEN.format(missing=missing))
    bare = {"PYTHONPATH": str(program_dir / "bare")}

    refused = windlass("web", "app.py", **bare)
    dev = start("dev", "app.py", **bare)

    assert refused.returncode == 2
    assert "pip install 'windlass[web]'" in refused.stderr
    dev.expect(r"pip install 'windlass\[web\]'")
    dev.expect("works on")  # the worker needs no extra
    dev.signal(signal.SIGTERM)
    assert dev.wait() == 0
    assert "HTTP API: " not in dev.output


# The link of `windlass dev`


def test_dev_prints_a_link_that_answers_and_stays_the_same_after_a_reload(start: Start, program_dir: Path) -> None:
    dev = start("dev", "app.py")
    link = dev.expect(LINK)[1]
    assert {each["name"] for each in get(f"{link}/types").json()["types"]} == {"add", "greet", "fail", "hold"}

    (program_dir / "app.py").write_text(APP.replace("def greet", "def welcome"))

    dev.expect("restarting")
    assert dev.expect(LINK)[1] == link
    assert {"welcome"} < {each["name"] for each in get(f"{link}/types").json()["types"]}
    dev.signal(signal.SIGINT)
    assert dev.wait() == 0
    assert "Traceback" not in dev.output


def test_two_programs_that_start_at_a_time_have_two_links(start: Start) -> None:
    both = [start("dev", "app.py") for _ in range(2)]  # neither waits for the other
    links = [dev.expect(LINK)[1] for dev in both]

    assert links[0] != links[1]
    assert [get(f"{link}/session").status_code for link in links] == [200, 200]


def test_dev_serves_nothing_with_no_web(start: Start) -> None:
    dev = start("dev", "app.py", "--no-web")
    dev.expect("works on")
    dev.signal(signal.SIGINT)

    assert dev.wait() == 0
    assert "HTTP API" not in dev.output


def test_the_port_of_dev_is_the_one_that_was_asked_for(windlass: Command, taken: int) -> None:
    refused = windlass("dev", "app.py", "--port", str(taken))

    assert refused.returncode == 2
    assert f"port {taken} is taken" in refused.stderr
    assert "--no-web" in refused.stderr
