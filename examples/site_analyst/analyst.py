"""Analyses websites in three phases: fetch and extract, form prompts, ask models. `python analyst.py` runs it all."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import HTMLResponse
from pydantic import AfterValidator, BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

from extract import Site, canonical, extract
from model_server import ModelServer
from models import CENTS_PER_1000_TOKENS, Answer, ask_model
from windlass import Context, Dead, FetchRefused, JobNotFound, SyncContext, Windlass, phase, unique
from windlass.fetch import Fetcher

MODELS = os.environ.get("ANALYST_MODELS", "stand-in").split(",")
ALLOW = os.environ.get("ANALYST_ALLOW", "").split()  # private addresses that may be analysed: none, but in a demo
WORKER = os.environ.get("ANALYST_WORKER", "on") == "on"  # off: `windlass worker analyst.py` runs the jobs

app = Windlass()
tables = sa.MetaData()
answers = sa.Table(
    "answers",
    tables,
    sa.Column("job", sa.String(36), primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("summary", sa.Text, nullable=False),
    sa.Column("audience", sa.Text, nullable=False),
    sa.Column("cents", sa.Float, nullable=False),
)
DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
scheme, _, place = app.settings.url.partition("://")
engine = create_async_engine(f"{DRIVERS[scheme]}://{place}")


# The phases


@app.job(
    unique=unique("website", states="unfinished"),
    isolation="process",  # a page of some KB can cost a parser gigabytes and minutes
    memory="512M",
    timeout="5m",
)
async def analyse(ctx: Context, website: str) -> Site:
    async with Fetcher(allow=ALLOW) as fetcher:
        try:
            page = await fetcher.get(website, cut=True)
        except FetchRefused as error:
            raise Dead(str(error)) from error
    ctx.log("fetched %d bytes, status %d", len(page.body), page.status)
    if page.status >= 400:
        raise RuntimeError(f"{page.url} answered {page.status}")
    return extract(page.text(), url=page.url, status=page.status)


@app.job
def form(ctx: SyncContext) -> list[str]:
    site: Site = ctx.previous
    about = f"Title: {site['title']}\nHeadings: {'; '.join(site['headings'][:10])}\n{site['text'][:2_000]}"
    asked = "Answer with a JSON object of two texts, `summary` and `audience`."
    return [f"Describe this website. {asked}\n{about}"]


@app.job
async def ask(ctx: Context) -> int:
    async def ask_once(model: str, prompt: str) -> Answer:
        answer = await ask_model(model, prompt)
        ctx.cost(cents(answer))
        return answer

    questions = [(model, prompt) for prompt in ctx.previous for model in MODELS]
    found = [  # a step each: an answer that was paid for is not asked for again
        await ctx.step(f"answer {place}", ask_once, model, prompt) for place, (model, prompt) in enumerate(questions)
    ]
    async with ctx.transaction() as tx:
        await tx.execute("DELETE FROM answers WHERE job = $1", str(ctx.job.id))  # of a run before a replay
        for place, answer in enumerate(found):
            await tx.execute(
                "INSERT INTO answers (job, place, model, prompt, summary, audience, cents) "
                "VALUES ($1, $2, $3, $4, $5, $6, $7)",
                *(str(ctx.job.id), place, answer["model"], answer["prompt"], answer["summary"], answer["audience"]),
                cents(answer),
            )
    return len(found)


def cents(answer: Answer) -> float:
    return answer["tokens"] / 1_000 * CENTS_PER_1000_TOKENS


NOT_STARTED = dict.fromkeys(("queued", "running", "failed", "waiting"), "not-started")
site = app.pipeline(
    "site",
    phase(analyse, name="website-analysis"),
    phase(form, name="prompt-forming"),
    phase(ask, name="model-analysis"),
    labels={**NOT_STARTED, "succeeded": "completed", "dead": "failed", "cancelled": "canceled"},
)


# The routes

HOME = """<!doctype html><html lang="en"><title>site_analyst</title>
<meta name="description" content="Analyses websites"><main><h1>Websites in three phases</h1>
<p>Fetch and extract, form prompts, ask models. See <a href="/docs">the routes</a>.</main></html>"""


class Order(BaseModel):
    website: Annotated[str, AfterValidator(canonical)]


class Accepted(BaseModel):
    id: UUID
    website: str
    existing: bool


class Report(BaseModel):
    state: str
    website: str
    error: str | None
    cents: int
    page: dict[str, Any] | None
    answers: list[dict[str, Any]]


@asynccontextmanager
async def make_tables(_: object) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(tables.create_all)
    yield
    await engine.dispose()


api = FastAPI(title="site_analyst", lifespan=app.lifespan(worker=WORKER, migrate=True, also=make_tables))


@api.get("/", response_class=HTMLResponse, include_in_schema=False)
async def home() -> str:
    """A page to try it with: the application can analyse itself."""
    return HOME


@api.post("/sites", status_code=202)
async def create(order: Order, response: Response) -> Accepted:
    job = await site.aenqueue(order.website)
    response.headers["Location"] = f"/sites/{job.id}"
    return Accepted(id=job.id, website=order.website, existing=job.existing)


@api.get("/sites/{id}")
async def show(id: UUID) -> Report:
    try:
        job = await app.afind(id)
        record, outputs = await job.arecord(), await job.aoutputs()
    except JobNotFound:
        raise HTTPException(404, "there is no such site") from None
    async with engine.connect() as connection:
        rows = await connection.execute(sa.select(answers).where(answers.c.job == str(id)).order_by(answers.c.place))
    failure = record.failure()
    return Report(
        state=site.label(record),
        website=record.arguments()["website"],
        error=str(failure) if failure is not None else record.reason,
        cents=record.cost_cents,
        page=outputs.get("website-analysis"),
        answers=[dict(row._mapping) for row in rows],
    )


if __name__ == "__main__":
    with ExitStack() as stack:
        if "OPENAI_BASE_URL" not in os.environ:
            os.environ["OPENAI_BASE_URL"] = stack.enter_context(ModelServer()).url
            print("OPENAI_BASE_URL is not set: a stand-in answers, which is no model")
        uvicorn.run("analyst:api", host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
