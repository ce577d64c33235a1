"""Sends one mail through SMTP, Resend or Microsoft Graph: the environment's ATLAS_MAIL says which."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from email.utils import formatdate
from functools import cache
from ssl import SSLContext
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import aiosmtplib
import httpx2

SENDER = os.environ.get("ATLAS_SENDER", "atlas@example.org")
PATIENCE = float(os.environ.get("ATLAS_MAIL_PATIENCE", "20"))  # seconds until a provider counts as silent
USUAL_PAUSE, SHORTEST_PAUSE, LONGEST_PAUSE = 10.0, 1.0, 600.0  # seconds after a 429


class Mail(NamedTuple):
    """A mail. Its key is the same in each attempt: the id of its job."""

    key: str
    to: str
    subject: str
    text: str
    html: str | None


class Refused(Exception):
    """The provider will never send this mail: the recipient or the mail itself is wrong."""


class Busy(Exception):
    """The provider takes no mail for a while."""

    def __init__(self, retry_after: str) -> None:
        super().__init__(f"the provider asks to wait: Retry-After: {retry_after}")
        try:
            self.pause = min(max(SHORTEST_PAUSE, float(retry_after)), LONGEST_PAUSE)
        except ValueError:  # a date, or nonsense
            self.pause = USUAL_PAUSE


async def send_by_smtp(mail: Mail) -> str:
    """SMTP knows no key. A mail whose answer is lost is sent again, with the same Message-ID."""
    message, server = EmailMessage(), urlsplit(os.environ["SMTP_URL"])
    message["From"], message["To"], message["Subject"], message["Date"] = SENDER, mail.to, mail.subject, formatdate()
    message["Message-ID"] = f"<{mail.key}@atlas>"
    message.set_content(mail.text)
    if mail.html is not None:
        message.add_alternative(mail.html, subtype="html")
    try:
        await aiosmtplib.send(
            message,
            hostname=server.hostname,
            port=server.port,
            username=unquote(server.username) if server.username else None,
            password=unquote(server.password) if server.password else None,
            use_tls=server.scheme == "smtps",
            timeout=PATIENCE,
        )
    except (aiosmtplib.SMTPRecipientsRefused, aiosmtplib.SMTPSenderRefused, aiosmtplib.SMTPDataError) as error:
        if all(each.code >= 500 for each in getattr(error, "recipients", [error])):
            raise Refused(str(error)) from error
        raise
    return str(message["Message-ID"])


async def send_by_resend(mail: Mail) -> str:
    """Resend sends a mail once per key within a day; a second request gets the first one's answer."""
    body = {"from": SENDER, "to": [mail.to], "subject": mail.subject, "text": mail.text}
    headers = {"Authorization": f"Bearer {os.environ['RESEND_API_KEY']}", "Idempotency-Key": mail.key}
    url = os.environ.get("RESEND_URL", "https://api.resend.com")
    answer = await post(f"{url}/emails", body if mail.html is None else body | {"html": mail.html}, headers)
    return str(answer.json()["id"])


async def send_by_graph(mail: Mail) -> str:
    """Graph's sendMail knows no key, and answers without an id: the header x-atlas-job names the job."""
    message = {
        "subject": mail.subject,
        "body": {"contentType": "Text" if mail.html is None else "HTML", "content": mail.html or mail.text},
        "toRecipients": [{"emailAddress": {"address": mail.to}}],
        "internetMessageHeaders": [{"name": "x-atlas-job", "value": mail.key}],
    }
    headers = {"Authorization": f"Bearer {await asyncio.to_thread(graph_token)}"}
    url = os.environ.get("GRAPH_URL", "https://graph.microsoft.com/v1.0")
    await post(f"{url}/users/{quote(SENDER)}/sendMail", {"message": message}, headers)
    return mail.key


def graph_token() -> str:
    """The application's token, which msal keeps until it expires."""
    found: dict[str, Any] = graph_login().acquire_token_for_client(["https://graph.microsoft.com/.default"])
    if "access_token" not in found:
        raise PermissionError(f"Microsoft gives no token: {found.get('error')}: {found.get('error_description')}")
    return str(found["access_token"])


@cache
def graph_login() -> Any:
    import msal  # half a second, and only Graph needs it

    login = os.environ.get("GRAPH_LOGIN", "https://login.microsoftonline.com")
    return msal.ConfidentialClientApplication(
        os.environ["GRAPH_CLIENT_ID"],
        authority=f"{login}/{os.environ['GRAPH_TENANT']}",
        client_credential=os.environ["GRAPH_CLIENT_SECRET"],
        instance_discovery=False,  # the operator of atlas chose the authority
        timeout=PATIENCE,
    )


async def post(url: str, body: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
    """A request. Raises Refused for ever, Busy for a while, and others until the next attempt."""
    async with httpx2.AsyncClient(timeout=PATIENCE, verify=trusted()) as client:
        answer = await client.post(url, json=body, headers=headers)
    if answer.status_code == 429:
        raise Busy(answer.headers.get("Retry-After", ""))
    if answer.status_code in (400, 413, 422):
        raise Refused(f"the provider answered {answer.status_code}: {answer.text[:500]}")
    answer.raise_for_status()
    return answer


@cache
def trusted() -> SSLContext:
    """The certificates that are trusted: to read them takes longer than to send a mail."""
    return httpx2.create_ssl_context()


PROVIDERS: dict[str, Callable[[Mail], Awaitable[str]]] = {
    "smtp": send_by_smtp,
    "resend": send_by_resend,
    "graph": send_by_graph,
}
PROVIDER = os.environ.get("ATLAS_MAIL", "smtp")
if PROVIDER not in PROVIDERS:
    raise ValueError(f"ATLAS_MAIL={PROVIDER!r} is no provider; choose one of {', '.join(PROVIDERS)}")
