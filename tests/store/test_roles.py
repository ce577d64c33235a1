"""The roles of deploy/postgres/roles.sql: each does its part, and what goes beyond it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from servers import administer, postgres_database
from windlass import Context, State, Windlass
from windlass.errors import StoreRefused
from windlass.model.delivery import DeliveryMode

ROLES = Path(__file__).parents[2] / "deploy/postgres/roles.sql"
PARTS = ("enqueue", "worker", "read", "admin")  # in the order of the programs below
READ_INPUT = "SELECT input FROM windlass.jobs"
STEAL = "UPDATE windlass.jobs SET token = gen_random_uuid()"
SECRETS = "SELECT hash FROM windlass.tokens"
FORGE = "INSERT INTO windlass.tokens (id, name, hash, role) VALUES (gen_random_uuid(), 'x', 'y', 'admin')"
ATTACKS = {
    "enqueue": [
        *(READ_INPUT, STEAL, SECRETS, FORGE, "DELETE FROM windlass.jobs", "SELECT output FROM windlass.history"),
        "INSERT INTO windlass.jobs (id, type, input, output) VALUES (gen_random_uuid(), 'x', '{}', '{}')",
        "INSERT INTO windlass.jobs (id, type, input, token, worker, status)"
        " SELECT gen_random_uuid(), 'x', '{}', id, id, 'running' FROM windlass.installation",
        "SELECT windlass.drop_partition('history', '2020-01-01')",
        "UPDATE windlass.gates SET state = 'paused'",
        "INSERT INTO windlass.outbox (job, deliver_at) VALUES (gen_random_uuid(), now())",
        "DELETE FROM windlass.keys",
        "SELECT id FROM windlass.jobs FOR UPDATE",
        "SELECT * FROM windlass.queue_depths",
        "SELECT windlass.add_partition('history', '2030-01-01')",
        "SELECT 1; LOCK TABLE windlass.keys IN ACCESS EXCLUSIVE MODE",
        "CREATE TABLE public.mine (id int)",
    ],
    "worker": [
        *(SECRETS, FORGE, "DROP TABLE windlass.jobs", "ALTER TABLE windlass.jobs ADD COLUMN x int"),
        "UPDATE windlass.migrations SET number = 1",
        "SELECT windlass.drop_partition('jobs', '2020-01-01')",
        "SELECT windlass.drop_partition('history', '2999-01-01')",
        "SELECT windlass.add_partition('history; DROP TABLE windlass.jobs', '2020-01-01')",
    ],
    "read": [
        *(
            SECRETS,
            FORGE,
            STEAL,
            "DELETE FROM windlass.audit",
            "INSERT INTO windlass.gates VALUES ('all', '', 'open')",
        ),
        "SELECT id FROM windlass.jobs FOR UPDATE",
        "SELECT nextval('windlass.audit_number')",
        "INSERT INTO windlass.outbox (job, deliver_at) VALUES (gen_random_uuid(), now())",
    ],
    "admin": ["DROP TABLE windlass.audit", "DELETE FROM windlass.migrations"],
}
# A trigger on a table of the attacker's own.
HANG = "CREATE TEMP TABLE mine (id uuid); CREATE TRIGGER forge AFTER INSERT ON mine"
EVERYBODY = (
    f"{HANG} REFERENCING NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION windlass.deliver_new()",
    f"{HANG} FOR EACH ROW EXECUTE FUNCTION windlass.deliver_changed()",
    "CREATE TRIGGER mine BEFORE INSERT ON windlass.jobs FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "TRUNCATE windlass.jobs",
    "SELECT setval('windlass.audit_number', 1)",
    "SET ROLE pg_write_all_data",
    "GRANT pg_write_all_data TO CURRENT_USER",
    "CREATE TABLE windlass.mine (id int)",
    "CREATE OR REPLACE FUNCTION windlass.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now()'",
    "ALTER FUNCTION windlass.now() OWNER TO CURRENT_USER",
)


class Users:
    """One user of each role. Names are unique: roles belong to the whole server."""

    def __init__(self, url: str) -> None:
        self.url, self.mark = url, uuid4().hex[:8]
        self.sql = ROLES.read_text()
        for part in PARTS:
            self.sql = self.sql.replace(f"windlass_{part}", self.role(part))
        administer(f"CREATE ROLE {self.user('owner')} LOGIN", url)
        administer(f"ALTER SCHEMA windlass OWNER TO {self.user('owner')}", url)
        with psycopg.connect(self.as_user("owner")) as owner, pytest.raises(psycopg.errors.RaiseException) as refused:
            owner.execute(self.sql.encode())
        assert f"CREATE ROLE {self.role('enqueue')} NOLOGIN" in str(refused.value.diag.message_hint)
        administer(self.sql, url)
        administer(self.sql, url)  # it may run again
        for part in PARTS:
            administer(f"CREATE ROLE {self.user(part)} LOGIN IN ROLE {self.role(part)}", url)

    def role(self, part: str) -> str:
        return f"{part}_{self.mark}"

    def user(self, part: str) -> str:
        return f"{part}_user_{self.mark}"

    def as_user(self, part: str) -> str:
        address = urlsplit(self.url)
        return urlunsplit(address._replace(netloc=f"{self.user(part)}@{address.netloc.rpartition('@')[2]}"))

    def drop(self) -> None:
        for name in [*map(self.user, (*PARTS, "owner")), *map(self.role, PARTS)]:
            administer(f"DROP OWNED BY {name} CASCADE", self.url)
            administer(f"DROP ROLE {name}", self.url)


@pytest.fixture(scope="module")
def users() -> Iterator[Users]:
    with postgres_database() as database:
        users = Users(database.url)
        yield users
        users.drop()


class Program:
    def __init__(self, url: str) -> None:
        self.app = app = Windlass(url)

        @app.job
        async def add(ctx: Context, a: int, b: int) -> int:
            return a + b

        @app.job
        async def total(ctx: Context, count: int) -> int:
            return sum(await ctx.wait([ctx.spawn(f"child {n}", add.call(n, n)) for n in range(count)]))

        self.add, self.total = add, total


@pytest.mark.postgres
async def test_each_role_can_do_its_part(users: Users) -> None:
    producer, server, reader, operator = (Program(users.as_user(part)) for part in PARTS)

    handles = [await producer.total.aenqueue(3)]
    handles += await producer.app.aenqueue_many(producer.add.call(n, 1) for n in range(30))
    again = producer.add.options(delay="1ms", idempotency_key="once")
    handles += [await again.aenqueue(1, 1), await again.aenqueue(1, 1)]
    with psycopg.connect(users.as_user("read")) as scaler:
        waiting = scaler.execute("SELECT queue, due, closed FROM windlass.queue_depths").fetchall()
    async with server.app.worker():
        results = [await (await reader.app.afind(handle.id)).aresult(timeout=60) for handle in handles]
    await server.app._client.aask(lambda store: store.prune(history=1.0, audit=1.0))

    assert [(queue, due in (31, 32), closed) for queue, due, closed in waiting] == [("default", True, False)]
    assert (results[0], results[1:31], results[31:]) == (6, [n + 1 for n in range(30)], [2, 2])
    assert {row.status for row in await reader.app.ajobs("type:add")} == {State.SUCCEEDED}
    assert await operator.app.apause(queue="default")
    for program in (producer, server, reader, operator):
        await program.app.aclose()


@pytest.mark.postgres
@pytest.mark.parametrize("part", PARTS)
def test_what_goes_beyond_a_role_is_refused(users: Users, part: str) -> None:
    with psycopg.connect(users.as_user(part), autocommit=True) as attacker:
        for attack in (*ATTACKS[part], *EVERYBODY):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                attacker.execute(attack.encode())


@pytest.mark.postgres
def test_a_table_of_a_later_migration_is_covered(users: Users) -> None:
    """Given roles that a superuser made, then a table that the schema's owner makes later has grants as well."""
    with psycopg.connect(users.as_user("owner"), autocommit=True) as owner:
        owner.execute("CREATE TABLE windlass.later (id bigint GENERATED ALWAYS AS IDENTITY, name text)")
        owner.execute("INSERT INTO windlass.later (name) VALUES ('there')")

    for part, may in (("enqueue", False), ("worker", True), ("read", True), ("admin", True)):
        with psycopg.connect(users.as_user(part)) as user:
            if may:
                assert user.execute("SELECT name FROM windlass.later").fetchall() == [("there",)]
            else:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    user.execute("SELECT name FROM windlass.later")


@pytest.mark.postgres
async def test_a_role_without_a_grant_is_told_which(users: Users) -> None:
    program = Program(users.as_user("read"))

    with pytest.raises(StoreRefused, match=r"permission denied for table jobs.*roles\.sql has the grants"):
        await program.add.aenqueue(1, 2)
    await program.app.aclose()


@pytest.mark.postgres
async def test_a_worker_that_may_not_make_triggers_is_told_who_does(users: Users) -> None:
    program = Program(users.as_user("worker"))

    with pytest.raises(StoreRefused, match=r"owner.* windlass broker setup app\.py"):
        await program.app._client.aask(lambda store: store.set_delivery(DeliveryMode.OUTBOX))
    await program.app.aclose()
