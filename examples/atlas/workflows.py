"""ENGINE_RUN executes a workflow: stages of tasks. Each task is a job; a stage begins when the one before has ended.

A text in a task's input may hold `$report`, the result of the earlier task of that name, and `$tenant`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from string import Template
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import BaseModel, Field, TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from operations import LABELS, QUEUE, app, build_report, metadata, purge_mail_log, send_email
from windlass import Context, Dead, InvalidInput, JobType, TypedCall

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]  # of a workflow, and of a task


class Task(BaseModel):
    """One job of a workflow."""

    name: Name
    type: str
    input: dict[str, Any] = {}


Stages = Annotated[list[Annotated[list[Task], Field(min_length=1, max_length=100)]], Field(min_length=1, max_length=20)]
STAGES: TypeAdapter[list[list[Task]]] = TypeAdapter(Stages)
BUILT_IN = {
    "mail_report": [
        [Task(name="report", type="REPORT_BUILD", input={"days": 1})],
        [
            Task(
                name="mail",
                type="EMAIL_SEND",
                input={"to": "owner@$tenant.example", "subject": "Mails of $tenant", "text": "$report"},
            )
        ],
    ],
    "housekeeping": [[Task(name="purge", type="MAIL_LOG_PURGE", input={"days": 90})]],
}
"""Every tenant has these workflows. A tenant that saves another under the same name gets its own."""

tenants = sa.Table("atlas_tenants", metadata, sa.Column("name", sa.Text, primary_key=True))
workflows = sa.Table(
    "atlas_workflows",
    metadata,
    sa.Column("tenant", sa.Text, sa.ForeignKey("atlas_tenants.name"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("stages", sa.Text, nullable=False),
)


# Execution


@app.job(type="ENGINE_RUN", queue=QUEUE, labels=LABELS | {"waiting": "running"}, permanent=[InvalidInput])
async def run_workflow(ctx: Context, workflow: str) -> dict[str, Any]:
    async def read() -> list[list[Task]]:
        async with ctx.transaction() as tx:
            chosen = "SELECT stages FROM atlas_workflows WHERE tenant = $1 AND name = $2"
            rows = await tx.fetch(chosen, ctx.job.tenant, workflow)
        stages = STAGES.validate_json(rows[0]["stages"]) if rows else BUILT_IN.get(workflow)
        if stages is None:
            raise Dead(f"there is no workflow {workflow!r}")
        return stages

    results: dict[str, Any] = {}
    # A step, so that this run keeps its stages when the workflow is changed: after each wait the handler starts anew.
    for stage in await ctx.step("stages", read):
        tasks = [ctx.spawn(task.name, call_of(task, results | {"tenant": ctx.job.tenant})) for task in stage]
        for task in await ctx.wait(tasks, need="ended"):
            if task.unsuccessful:
                raise Dead(f"its task {task.name} ended {task.status or 'gone'}: {task.error or 'no error'}")
            results[task.name] = task.result
    return results


def call_of(task: Task, results: Mapping[str, Any]) -> TypedCall[Any]:
    """The job of a task, with the results of earlier tasks in its texts. Raises InvalidInput."""
    words = {name: result if isinstance(result, str) else text_of(result) for name, result in results.items()}
    filled = {
        name: Template(value).safe_substitute(words) if isinstance(value, str) else value
        for name, value in task.input.items()
    }
    return TYPES[task.type].call(**filled)


def text_of(result: Any) -> str:
    return str(result["text"]) if isinstance(result, dict) and "text" in result else json.dumps(result)


TYPES: dict[str, JobType[..., Any]] = {
    "EMAIL_SEND": send_email,
    "ENGINE_RUN": run_workflow,
    "REPORT_BUILD": build_report,
    "MAIL_LOG_PURGE": purge_mail_log,
}


# The door


class Unusable(Exception):
    """A workflow or a job that cannot run; the text says why."""


async def save_workflow(connection: AsyncConnection, tenant: str, name: str, stages: list[list[Task]]) -> None:
    """Save a workflow of a tenant. Raises Unusable."""
    # Two saves at the same moment, `a` that runs `b` and `b` that runs `a`, would each find no circle. So a save first
    # writes the tenant's row: the second one waits there for the first one's commit, and reads what it saved.
    locked = "INSERT INTO atlas_tenants (name) VALUES (:name) ON CONFLICT (name) DO UPDATE SET name = excluded.name"
    await connection.execute(sa.text(locked), {"name": tenant})
    check(name, await read_workflows(connection, tenant) | {name: stages})
    written = """INSERT INTO atlas_workflows (tenant, name, stages) VALUES (:tenant, :name, :stages)
        ON CONFLICT (tenant, name) DO UPDATE SET stages = excluded.stages"""
    row = {"tenant": tenant, "name": name, "stages": STAGES.dump_json(stages).decode()}
    await connection.execute(sa.text(written), row)


async def read_workflows(connection: AsyncConnection, tenant: str) -> dict[str, list[list[Task]]]:
    rows = await connection.execute(sa.select(workflows.c.name, workflows.c.stages).filter_by(tenant=tenant))
    return BUILT_IN | {name: STAGES.validate_json(stages) for name, stages in rows}


def check(name: str, known: Mapping[str, list[list[Task]]]) -> None:
    """Whether a workflow can run, among all of its tenant. Raises Unusable."""
    tasks = [task for stage in known[name] for task in stage]
    if len({task.name for task in tasks}) < len(tasks):
        raise Unusable(f"the workflow {name!r} has two tasks of one name; give each its own")
    for task in tasks:
        check_type(task.type, where=f"the task {task.name!r}")
        if task.type == "ENGINE_RUN":
            check_known(task.input, known)
        try:
            call_of(task, {})
        except InvalidInput as error:
            raise Unusable(f"the task {task.name!r}: {error}") from error
    way = find_circle(name, known)
    if way:
        raise Unusable(f"the workflow {name!r} would run itself without end: {' → '.join(way)}")


def check_type(type: str, *, where: str) -> None:
    if type not in TYPES:
        near = get_close_matches(type.upper(), TYPES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Unusable(f"{where} names the unknown type {type!r}; there are {', '.join(TYPES)}{hint}")


def check_known(input: Mapping[str, Any], known: Mapping[str, object]) -> None:
    """Whether the input of an ENGINE_RUN names a workflow that is there."""
    wanted = input.get("workflow")
    if not isinstance(wanted, str) or wanted not in known:
        raise Unusable(f"there is no workflow {wanted!r}; there are {', '.join(sorted(known))}")


def find_circle(name: str, known: Mapping[str, list[list[Task]]]) -> list[str]:
    """The way from a workflow through those that it runs back to itself; empty: there is none."""
    ways, seen = [[name]], set[str]()
    while ways:
        way = ways.pop()
        for task in (task for stage in known[way[-1]] for task in stage if task.type == "ENGINE_RUN"):
            nested = task.input["workflow"]
            if nested == name:
                return [*way, nested]
            if nested not in seen:
                seen.add(nested)
                ways.append([*way, nested])
    return []
