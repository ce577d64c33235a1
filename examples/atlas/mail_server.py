"""A stand-in for mail providers, for demos and tests. It delivers no mail: it writes down what it was given.

It speaks SMTP, Resend's API with its idempotency keys, and, over TLS, Graph's sendMail with Microsoft's login. The
recipient's name chooses how it behaves: `refused@…` has no mailbox, `broken@…` is accepted and answered with an error
the first time, `slow@…` is answered late, `busy@…` is asked to come back the first time (Resend and Graph).
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, NamedTuple


class Taken(NamedTuple):
    """A mail that the stand-in accepted. `key` is the id of its job, by the mail's own header."""

    way: str
    key: str
    to: str
    subject: str
    text: str


class MailServer:
    """`with MailServer() as server:` serves at `server.smtp` and `server.http` until the block ends."""

    def __init__(
        self,
        ports: tuple[int, int] = (0, 0),
        *,
        slow: float = 2.0,  # seconds
        certificate: Path | None = None,  # with its key: everything but SMTP is over TLS then
        tell: Callable[[Taken], None] = lambda mail: None,
    ) -> None:
        self.taken: list[Taken] = []
        self.asked: Counter[str] = Counter()  # attempts to send, by key
        self._copies: Counter[str] = Counter()  # mails taken, by key
        self.slow, self.tell = slow, tell
        self._lock = threading.Lock()
        smtp = _Tcp(("127.0.0.1", ports[0]), type("Smtp", (_Smtp,), {"server_of": self}))
        http = _Http(("127.0.0.1", ports[1]), type("Api", (_Api,), {"server_of": self}))
        self.smtp = f"smtp://127.0.0.1:{smtp.server_address[1]}"
        self.http = f"http{'s' if certificate else ''}://127.0.0.1:{http.server_port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            http.socket = context.wrap_socket(http.socket, server_side=True)
        self._servers = (smtp, http)

    def take(self, mail: Taken, *, once: bool = False) -> bool:
        """Accept a mail; with `once` no second copy of it. False: the answer is an error all the same."""
        with self._lock:
            if once and self._copies[mail.key]:
                return True
            self.taken.append(mail)
            self._copies[mail.key] += 1
            is_first = self._copies[mail.key] == 1
        self.tell(mail)
        if mail.to.startswith("slow@"):
            time.sleep(self.slow)
        return not (is_first and mail.to.startswith("broken@"))

    def count_asked(self, key: str) -> int:
        with self._lock:
            self.asked[key] += 1
            return self.asked[key]

    def __enter__(self) -> MailServer:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, name="mail-server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Tcp(ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128


class _Http(ThreadingHTTPServer):
    request_queue_size = 128


class _Smtp(StreamRequestHandler):
    server_of: MailServer

    def handle(self) -> None:
        with suppress(OSError):  # the client had enough
            self._say("220 stand-in, which delivers no mail")
            to = ""
            for line in self.rfile:
                match line[:4].upper().strip():
                    case b"EHLO" | b"HELO" | b"MAIL" | b"RSET" | b"NOOP":
                        self._say("250 well")
                    case b"RCPT":
                        to = line.decode().partition("<")[2].partition(">")[0]
                        self._say("550 no such mailbox" if to.startswith("refused@") else "250 well")
                    case b"DATA":
                        self._say("354 go on")
                        self._say("250 accepted" if self._take(to) else "451 an error after the mail was accepted")
                    case b"QUIT":
                        self._say("221 goodbye")
                        break
                    case _:
                        self._say("502 unknown")

    def _take(self, to: str) -> bool:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            if not line:
                raise ConnectionError("half a mail is none")
            lines.append(line.removeprefix(b"."))  # a line that begins with a dot has one more
        mail = message_from_bytes(b"".join(lines), policy=policy.default)
        body = mail.get_body(("plain",))
        text = "" if body is None else str(body.get_content()).strip()
        key = str(mail["Message-ID"]).strip("<>").partition("@")[0]
        self.server_of.count_asked(key)
        return self.server_of.take(Taken("smtp", key, to, str(mail["Subject"]), text))

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class _Api(BaseHTTPRequestHandler):
    server_of: MailServer

    def handle(self) -> None:
        with suppress(ConnectionError):  # a worker that was killed, or had enough
            super().handle()

    def do_GET(self) -> None:  # where msal asks for the address of tokens
        base = f"{self.server_of.http}{self.path.partition('/v2.0')[0]}/oauth2/v2.0"
        self._answer(200, {"issuer": base, "authorization_endpoint": base, "token_endpoint": f"{base}/token"})

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        given = self.rfile.read(size)
        if len(given) < size:
            return None  # the client is gone
        if self.path.endswith("/token"):
            return self._answer(200, {"token_type": "Bearer", "expires_in": 3600, "access_token": "stand-in"})
        if not self.headers.get("Authorization", "").startswith("Bearer "):
            return self._answer(401, {"message": "no token"})
        return self._send(json.loads(given))

    def _send(self, body: dict[str, Any]) -> None:
        if self.path == "/emails":
            key, to = self.headers["Idempotency-Key"], body["to"][0]
            mail = Taken("resend", key, to, body["subject"], body.get("text", ""))
        else:
            message = body["message"]
            key, to = (
                message["internetMessageHeaders"][0]["value"],
                message["toRecipients"][0]["emailAddress"]["address"],
            )
            mail = Taken("graph", key, to, message["subject"], message["body"]["content"])
        asked = self.server_of.count_asked(key)
        if to.startswith("refused@"):
            return self._answer(422, {"message": "no such mailbox"})
        if to.startswith("busy@") and asked == 1:
            return self._answer(429, {"message": "too many requests"}, retry_after="2")
        if not self.server_of.take(mail, once=mail.way == "resend"):
            return self._answer(500, {"message": "an error after the mail was accepted"})
        return self._answer(200, {"id": f"stand-in-{key}"}) if mail.way == "resend" else self._answer(202, None)

    def _answer(self, status: int, body: object, retry_after: str = "") -> None:
        text = b"" if body is None else json.dumps(body).encode()
        with suppress(OSError):  # the client had enough
            self.send_response(status)
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None: ...


if __name__ == "__main__":
    ports = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) == 3 else (2525, 2580)
    with MailServer(ports, tell=lambda mail: print(json.dumps(mail._asdict()), flush=True)) as server:
        print(f"a stand-in, which delivers no mail: SMTP_URL={server.smtp} RESEND_URL={server.http}", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
