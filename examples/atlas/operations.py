"""The app, and the job types that are no workflow: EMAIL_SEND, REPORT_BUILD and MAIL_LOG_PURGE."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated

import sqlalchemy as sa
from msgspec import Meta

from mail import PATIENCE, PROVIDER, PROVIDERS, Busy, Mail, Refused
from windlass import Context, Dead, Snooze, Windlass

QUEUE = "atlas"  # the one queue of all its jobs: the online switch is its gate, and closes nothing else on the database
LABELS = {"failed": "queued", "dead": "failed"}  # a failed job with an attempt to come is shown as queued
CENTS_PER_MAIL = float(os.environ.get("ATLAS_CENTS_PER_MAIL", "1"))

Address = Annotated[str, Meta(pattern=r"^[^@\s,<>]+@[^@\s,<>]+$(?!\n)", max_length=254)]
Subject = Annotated[str, Meta(pattern=r"^[^\r\n]*$(?!\n)", max_length=500)]
Days = Annotated[int, Meta(ge=0, le=3_650)]

app = Windlass()
metadata = sa.MetaData()
mails = sa.Table(
    "atlas_mails",  # a row for each mail that a provider accepted
    metadata,
    sa.Column("job", sa.String(36), primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("recipient", sa.Text, nullable=False),
    sa.Column("sent_at", sa.Float(53), nullable=False),  # seconds since 1970
)


@app.job(type="EMAIL_SEND", queue=QUEUE, labels=LABELS, audit="EMAIL_SENT", timeout=3 * PATIENCE)
async def send_email(
    ctx: Context, to: Address, subject: Subject, text: str = "", html: str | None = None
) -> dict[str, str]:
    mail = Mail(str(ctx.job.id), to, subject, text, html)
    try:
        id = await PROVIDERS[PROVIDER](mail)
    except Busy as busy:
        raise Snooze(busy.pause) from busy  # no attempt is used up
    except Refused as refused:
        raise Dead(str(refused)) from refused
    ctx.cost(CENTS_PER_MAIL)
    async with ctx.transaction() as tx:  # commits with the end of the job
        inserted = "INSERT INTO atlas_mails (job, tenant, recipient, sent_at) VALUES ($1, $2, $3, $4)"
        await tx.execute(inserted, mail.key, ctx.job.tenant, to, app.clock.now().timestamp())
    return {"messageId": id, "provider": PROVIDER}


@app.job(type="REPORT_BUILD", queue=QUEUE, labels=LABELS)
async def build_report(ctx: Context, days: Days = 7) -> dict[str, str]:
    async with ctx.transaction() as tx:
        counted = "SELECT count(*) AS mails, count(DISTINCT recipient) AS people FROM atlas_mails"
        (row,) = await tx.fetch(f"{counted} WHERE tenant = $1 AND sent_at >= $2", ctx.job.tenant, days_ago(days))
    return {"text": f"{ctx.job.tenant}: {row['mails']} mails to {row['people']} addresses in {days} days"}


@app.job(type="MAIL_LOG_PURGE", queue=QUEUE, labels=LABELS)
async def purge_mail_log(ctx: Context, days: Days = 90) -> dict[str, int]:
    async with ctx.transaction() as tx:
        deleted = "DELETE FROM atlas_mails WHERE tenant = $1 AND sent_at < $2 RETURNING job"
        rows = await tx.fetch(deleted, ctx.job.tenant, days_ago(days))
    return {"deleted": len(rows)}


def days_ago(days: int) -> float:
    return (app.clock.now() - timedelta(days=days)).timestamp()
