"""Looking for jobs: every field of the filter language means the same on both stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from windlass.errors import FilterError
from windlass.model.filter import FIELDS, Kind, parse
from windlass.model.rows import FoundJob
from windlass.model.state import State, Verb
from windlass.policy.fingerprint import fingerprint

from .errors import fail

if TYPE_CHECKING:
    from .rig import Rig

# Queued last: the others are made by claiming the only job that is due.
ALL_STATES = [State.FAILED, State.DEAD, State.WAITING, State.SUCCEEDED, State.CANCELLED, State.RUNNING, State.QUEUED]


async def found(rig: Rig, text: str, **options: Any) -> list[UUID]:
    return [job.id for job in await rig.store.search(parse(text), **options)]


def newest_first(*jobs: UUID) -> list[UUID]:
    """By id: two jobs of one millisecond have no order that a test could know."""
    return sorted(jobs, reverse=True)


async def failed(rig: Rig, type: str, message: str) -> UUID:
    job = await rig.held()
    error = json.dumps(
        {"type": type, "message": message, "attempt": 1, "attemptedAt": "2026-01-01T00:00:00Z", "traceback": "at sea"}
    )
    await rig.write(job.lease, Verb.FAIL, delay=60.0, error=error)
    return job.id


# States and names


async def test_a_state_finds_the_jobs_in_it_wherever_their_rows_are(rig: Rig) -> None:
    jobs = {state: await rig.job_in(state) for state in ALL_STATES}

    for state, job in jobs.items():
        assert await found(rig, f"state:{state}") == [job]
    assert set(await found(rig, "state:dead,succeeded")) == {jobs[State.DEAD], jobs[State.SUCCEEDED]}
    assert set(await found(rig, "-state:dead,succeeded")) == set(jobs.values()) - {
        jobs[State.DEAD],
        jobs[State.SUCCEEDED],
    }


NAMES = ("queue", "type", "tenant", "key", "phase", "pipeline")


async def test_a_name_is_found_whole_by_its_parts_and_in_a_list(rig: Rig) -> None:
    job = await rig.enqueue(**dict.fromkeys(NAMES, "mail.send"))
    other = await rig.enqueue(**dict.fromkeys(NAMES, "report"))

    for field in NAMES:
        await check_name(rig, field, job, other)


async def check_name(rig: Rig, field: str, job: UUID, other: UUID) -> None:
    for text in ("mail.send", "mail*", "*send", "m*l*d", "*", "nothing,mail.send", '"mail.send"'):
        assert job in await found(rig, f"{field}:{text}"), text
    for text in ("mail", "Mail.send", "MAIL*", "mail?send", "mail_send", '"mail*"', "send*", "*mail"):
        assert job not in await found(rig, f"{field}:{text}"), text
    assert job not in await found(rig, f"-{field}:mail*")
    assert other in await found(rig, f"-{field}:mail*")


async def test_a_job_without_a_key_is_found_by_the_negation_of_any_key(rig: Rig) -> None:
    keyed, plain = await rig.enqueue(key="order-1"), await rig.enqueue()

    assert await found(rig, "key:*") == [keyed]
    assert await found(rig, "-key:*") == [plain]


async def test_characters_that_mean_something_to_a_database_are_themselves(rig: Rig) -> None:
    names = ["50%", "a_b", "a\\b", "a[b]", "a?b", "a*b", "it's", 'a"b', "a b", "a,b", "Ünï"]
    jobs = {name: await rig.enqueue(queue=name) for name in [*names, "axb", "500", "a"]}

    for name in names:
        quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
        assert await found(rig, f"queue:{quoted}") == [jobs[name]], name
        if not set(name) & set('*"\\ ,'):
            assert await found(rig, f"queue:{name}*") == [jobs[name]], name


async def test_the_reason_of_a_death_is_a_name(rig: Rig) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.BURY, reason="exhausted")

    assert await found(rig, "reason:exhausted") == [job.id]
    assert await found(rig, "reason:crashed") == []


async def test_a_fingerprint_is_exact_and_finds_also_what_went_on(rig: Rig) -> None:
    failed = await fail(rig, "no such user 7")
    went_on = await fail(rig, "no such user 8", delay=0.0)
    await rig.write((await rig.take(went_on)).lease, Verb.SUCCEED)
    other, none = await fail(rig, "timed out"), await rig.enqueue()
    group = fingerprint("ValueError", "no such user 9")

    assert set(await found(rig, f"fingerprint:{group}")) == {failed, went_on}
    assert await found(rig, f"fingerprint:{group.upper()} state:failed") == [failed]
    assert set(await found(rig, f"-fingerprint:{group}")) == {other, none}
    assert await found(rig, f"fingerprint:{'0' * 12}") == []
    for wrong in (group[:-1], f"{group[:-1]}*", "nothing"):
        with pytest.raises(FilterError, match=r"character 13 .* 12 hex digits; see windlass errors"):
            await found(rig, f"fingerprint:{wrong}")


# Ids


async def test_an_id_is_found_whole_and_by_its_beginning_or_end(rig: Rig) -> None:
    job = await rig.enqueue()
    others = [await rig.enqueue() for _ in range(3)]

    assert await found(rig, f"id:{job}") == await found(rig, str(job)) == [job]
    assert await found(rig, job.hex[-8:]) == [job]
    assert await found(rig, str(job)[:-1]) == [job]
    assert job in await found(rig, job.hex[:6])
    assert set(await found(rig, f"id:{job},{others[0]},{others[1].hex[-8:]}")) == {job, *others[:2]}
    assert set(await found(rig, f"-{job}")) == set(others)
    assert await found(rig, f"id:{uuid4()}") == []


async def test_a_worker_and_a_parent_are_found_by_id(rig: Rig) -> None:
    parent = uuid4()
    job = await rig.held(parent=parent)
    free = await rig.enqueue()

    assert await found(rig, f"worker:{rig.worker}") == [job.id]
    assert await found(rig, f"parent:{parent.hex[-12:]}") == [job.id]
    assert await found(rig, f"-worker:{rig.worker}") == [free]


# Numbers and times


async def test_numbers_are_compared(rig: Rig) -> None:
    low, middle, high = [await rig.enqueue(priority=priority) for priority in (-5, 0, 10)]

    assert await found(rig, "priority:10") == [high]
    assert await found(rig, "priority:>0") == [high]
    assert await found(rig, "priority:>=0") == newest_first(high, middle)
    assert await found(rig, "priority:<0") == [low]
    assert await found(rig, "priority:<=-5") == [low]
    assert await found(rig, "priority:-5,10") == newest_first(high, low)
    assert await found(rig, "-priority:>0") == newest_first(middle, low)
    assert await found(rig, "priority:>0.5") == [high]
    assert await found(rig, "priority:<9999999999999999999") == newest_first(high, middle, low)
    assert await found(rig, "priority:0..") == newest_first(high, middle)
    assert await found(rig, "priority:..0") == newest_first(middle, low)
    assert await found(rig, "priority:-1..9") == [middle]
    assert await found(rig, "-priority:-1..9") == newest_first(high, low)


async def test_attempts_crashes_and_cost_are_numbers(rig: Rig) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.FAIL, delay=60.0, attempt=3, crashes=2, cost_cents=150)
    other = await rig.enqueue()

    for text in ("attempt:3", "attempt:>2", "crashes:2", "cost:>=150"):
        assert await found(rig, text) == [job.id], text
    assert await found(rig, "attempt:0") == [other]


async def test_an_age_is_measured_by_the_clock_of_the_store(rig: Rig) -> None:
    old = await rig.enqueue()
    await rig.advance(3600)
    young = await rig.enqueue()
    await rig.advance(60)

    assert await found(rig, "age:>1h") == await found(rig, "age:1h") == [old]
    assert await found(rig, "age:<1h") == [young]
    assert await found(rig, "age:<=1h1m age:>=1h1m") == [old]
    assert await found(rig, "-age:>1h") == [young]
    assert await found(rig, "age:1h..") == await found(rig, "age:1h..2h") == [old]
    assert await found(rig, "age:..1h") == await found(rig, "age:30s..2m") == [young]
    assert await found(rig, "age:2m..1h") == []


async def test_due_is_the_time_since_a_job_could_have_started(rig: Rig) -> None:
    due = await rig.enqueue()
    await rig.enqueue(delay=600.0)
    await rig.advance(60)

    assert await found(rig, "due:>=0s") == [due]
    assert await found(rig, "due:>5m") == []


async def test_touched_is_the_time_since_the_last_change(rig: Rig) -> None:
    job, still = await rig.enqueue(), await rig.enqueue()
    await rig.advance(600)
    await rig.store.operate(Verb.CANCEL, job)

    assert await found(rig, "touched:<1m") == [job]
    assert await found(rig, "touched:>5m") == [still]


# Errors


async def test_an_error_is_found_by_a_part_of_its_type_or_message_in_any_case(rig: Rig) -> None:
    job = await failed(rig, "httpx.ReadTimeout", 'the peer said "no": 100% of a_b\nat the end')
    await rig.enqueue()

    for text in ("timeout", "READ", '"said \\"no\\""', "100%", "a_b", "peer*said", '"ReadTimeout: the peer"'):
        assert await found(rig, f"error:{text}") == [job], text
    for text in ("refused", "10_%", "aXb", '"peer*said"', "sea", "attemptedAt", ":::"):
        assert await found(rig, f"error:{text}") == [], text


async def test_jobs_without_an_error_are_not_hidden_by_a_negation(rig: Rig) -> None:
    job, plain = await failed(rig, "ValueError", "no"), await rig.enqueue()

    assert await found(rig, "-error:ValueError") == [plain]
    assert await found(rig, "error:*") == [job]


# Inside the input and the output

DOCUMENT = {
    "user_id": 42,
    "big": 9_007_199_254_740_993,
    "price": 9.5,
    "name": "Ann Lee",
    "vip": True,
    "banned": False,
    "nothing": None,
    "address": {"city": "Bonn", "lines": [{"no": 7}, {"no": 8}]},
    "tags": ["red", "blue", 3, True, None, {"x": 1}],
    "empty": [],
    "7": "seven",
    "a.b": "dotted",
    'say "hi"\\': "odd",
    "$": "dollar",
    "[0]": "bracket",
}


LEADS = [
    "input.user_id:42",
    "input.user_id:1,42",
    "input.user_id:>41",
    "input.user_id:42..",
    "input.user_id:..42",
    "input.user_id:41..43",
    "input.user_id:<=42.0",
    "input.user_id:42.0",
    "input.user_id:4*",
    "input.big:9007199254740993",
    "input.big:>9007199254740992",
    "input.price:9.5",
    "input.price:>9",
    'input.name:"Ann Lee"',
    "input.name:Ann*",
    "input.name:*Lee",
    "input.name:*",
    "input.vip:true",
    "input.banned:false",
    "input.nothing:null",
    "input.address.city:Bonn",
    "input.address.lines.0.no:7",
    "input.address.lines.1.no:>7",
    "input.tags:blue",
    "input.tags:3",
    "input.tags:true",
    "input.tags:null",
    "input.tags:b*",
    "input.tags.0:red",
    "input.tags.5.x:1",
    "input.7:seven",
    'input."a.b":dotted',
    'input."say \\"hi\\"\\\\":odd',
    "input.$:dollar",
    "input.[0]:bracket",
]
LEADS_ELSEWHERE = [
    "input.user_id:43",
    "input.user_id:>42",
    "input.user_id:43..",
    "input.user_id:..41",
    "input.user_id:1..41",
    "input.name:1..",
    "input.user_id.deeper:42",
    "input.big:9007199254740992",
    "input.name:ann*",
    "input.name:>1",
    'input.name:"Ann*"',
    "input.vip:1",
    "input.vip:false",
    "input.banned:0",
    "input.missing:null",
    'input.nothing:"null"',
    "input.nothing:*",
    "input.address:Bonn",
    "input.address:*Bonn*",  # a reader could guess a secret inside the object
    "input.address:*",
    "input.address.lines:*7*",
    "input.address.city.0:Bonn",
    "input.tags.1:red",
    "input.tags.9:red",
    "input.tags.x:1",
    "input.empty:null",
    "input.a.b:dotted",
    "input.User_id:42",
]


async def test_a_path_leads_into_the_input(rig: Rig) -> None:
    job = await rig.enqueue(input=json.dumps(DOCUMENT))

    for text in LEADS:
        assert await found(rig, text) == [job], text
        assert await found(rig, f"-{text}") == [], text


async def test_a_path_that_leads_elsewhere_finds_nothing(rig: Rig) -> None:
    job = await rig.enqueue(input=json.dumps(DOCUMENT))

    for text in LEADS_ELSEWHERE:
        assert await found(rig, text) == [], text
        assert await found(rig, f"-{text}") == [job], text


async def test_the_output_has_paths_too_once_there_is_one(rig: Rig) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.SUCCEED, output='{"sent": {"to": ["a@example.org"]}}')
    text = await rig.held()
    await rig.write(text.lease, Verb.SUCCEED, output='"just text"')
    waiting = await rig.enqueue()

    assert await found(rig, "output.sent.to:*@example.org") == [job.id]
    assert await found(rig, "-output.sent.to:*") == newest_first(waiting, text.id)


async def test_terms_are_joined_by_and(rig: Rig) -> None:
    job = await rig.enqueue(queue="mail", tenant="acme", input='{"n": 1}')
    await rig.enqueue(queue="mail", tenant="other", input='{"n": 1}')
    await rig.enqueue(queue="report", tenant="acme", input='{"n": 1}')

    assert await found(rig, "queue:mail tenant:acme input.n:1 state:queued -priority:>0") == [job]


# Hostile filters


HOSTILE = ["'; DROP TABLE windlass_jobs; --", "' OR 1=1 --", "%", "_", "(a+)+$", "$1", "?1", "{where}", "{}", "\x1b[2J"]


@pytest.mark.parametrize("field", ["queue", "error", "input.x", 'input."x\'"', "output.x"])
async def test_what_looks_like_sql_is_only_text(rig: Rig, field: str) -> None:
    job = await rig.enqueue(queue="mail", input='{"x": "y"}')

    for value in HOSTILE:
        assert await found(rig, f'{field}:"{value}"') == []
        assert await found(rig, f'-{field}:"{value}"') == [job]


async def test_the_longest_filter_is_answered(rig: Rig) -> None:
    job = await rig.enqueue(input=json.dumps({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": "x"}}}}}}}}))
    deep = " ".join(["input.a.b.c.d.e.f.g.h:x"] * 20)
    wide = f"queue:{','.join(f'q{n}*' for n in range(49))},default"

    assert await found(rig, deep) == [job]
    assert await found(rig, wide) == [job]


def test_every_field_is_covered_here() -> None:
    """A new field needs its story above."""
    documented = {
        *NAMES,
        "reason",
        "state",
        "status",
        "id",
        "worker",
        "parent",
        "priority",
        "attempt",
        "crashes",
        "cost",
    }
    documented |= {"age", "touched", "due", "error", "fingerprint", "input", "output"}

    assert set(FIELDS) == documented
    assert {kind for kind, _ in FIELDS.values()} == set(Kind)


# Pages


async def test_pages_go_on_below_the_last_id_over_jobs_and_history(rig: Rig) -> None:
    jobs = [await rig.enqueue() for _ in range(7)]
    for job in (jobs[1], jobs[4], jobs[6]):
        await rig.store.operate(Verb.CANCEL, job)

    first = await found(rig, "", page=3)
    second = await found(rig, "", page=3, below=first[-1])
    third = await found(rig, "", page=3, below=second[-1])

    assert first + second + third == newest_first(*jobs)
    assert await found(rig, "", page=3, below=third[-1]) == []


async def test_a_job_that_finishes_between_two_pages_is_not_told_twice(rig: Rig) -> None:
    jobs = [await rig.enqueue() for _ in range(4)]

    first = await found(rig, "", page=2)
    for job in jobs:
        await rig.store.operate(Verb.CANCEL, job)
    second = await found(rig, "", page=2, below=first[-1])

    assert first + second == newest_first(*jobs)


async def test_a_filter_holds_on_every_page(rig: Rig) -> None:
    wanted = [await rig.enqueue(queue="mail") for _ in range(3)]
    for _ in range(3):
        await rig.enqueue(queue="report")

    first = await found(rig, "queue:mail", page=2)
    second = await found(rig, "queue:mail", page=2, below=first[-1])

    assert first + second == newest_first(*wanted)


async def test_ids_are_found_like_jobs_with_what_a_bulk_action_needs(rig: Rig) -> None:
    jobs = [await rig.enqueue(queue="mail", tenant=name) for name in ("acme", "other") * 3]
    await rig.store.operate(Verb.CANCEL, jobs[0])

    first = await rig.store.search_ids(parse("queue:mail"), page=4)
    second = await rig.store.search_ids(parse("queue:mail"), page=4, below=first[-1].id)

    assert [job.id for job in first + second] == newest_first(*jobs)
    for found_job in first + second:
        job = await rig.find(found_job.id)
        assert found_job == FoundJob(job.id, job.queue, job.type, job.status, job.followed)
    scoped = await rig.store.search_ids(parse("tenant:*"), tenant="acme")
    assert [job.id for job in scoped] == newest_first(*jobs[::2])


# The scope of a tenant

ATTEMPTS_TO_WIDEN = (
    "",
    "tenant:*",
    "tenant:other",
    "tenant:other,acme",
    "-tenant:acme",
    "tenant:acme,*",
    'tenant:"other"',
    "state:queued,running,failed,waiting,dead,succeeded,cancelled",
    "key:*",
    "-key:*",
    "input.to:*",
)


async def test_a_tenants_scope_holds_whatever_the_filter_says(rig: Rig) -> None:
    """Each filter that finds the other tenant's jobs, by any field, finds none of them inside the scope."""
    own = await rig.enqueue(tenant="acme", key="order-1")
    ended = await rig.enqueue(tenant="acme")
    foreign = [await rig.enqueue(tenant=name) for name in ("other", "Acme", "acme2", "*")]
    for job in (ended, foreign[0]):
        await rig.store.operate(Verb.CANCEL, job)

    for text in (*ATTEMPTS_TO_WIDEN, f"id:{foreign[1]},{own}", f"{foreign[0]}"):
        inside = await found(rig, text, tenant="acme")
        assert set(inside) == set(await found(rig, text)) & {own, ended}, text
    assert set(await found(rig, "", tenant="acme")) == {own, ended}
    assert await found(rig, "", tenant="*") == [foreign[3]]
    assert await found(rig, "", tenant="acm*") == await found(rig, "", tenant="nothing") == []


async def test_a_tenants_scope_holds_on_every_page(rig: Rig) -> None:
    wanted = [await rig.enqueue(tenant=name) for name in ("acme", "other") * 3][::2]

    first = await found(rig, "age:0s..", page=2, tenant="acme")
    second = await found(rig, "age:0s..", page=2, below=first[-1], tenant="acme")

    assert first + second == newest_first(*wanted)
