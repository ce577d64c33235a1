-- Roles with the least that each part needs. Run this file after each migration; it may run again at any time:
--   psql "$OWNER_URL" -v ON_ERROR_STOP=1 -f deploy/postgres/roles.sql
-- The user is the owner of the schema (that of `windlass migrate`) with CREATEROLE, or a superuser. Where neither may be, an
-- administrator creates the four roles first, and the owner runs this file. Nothing changes unless all of it succeeds. Later
-- tables are covered by the default privileges at the end.
--
--   windlass_enqueue   enqueues jobs, also with keys, limits and a delay. It reads no job's input, changes no job, and has
--                      no graphs or batches, which write joins
--   windlass_worker    runs jobs: everything that `windlass worker` and `windlass relay` do. No API tokens, no DDL
--   windlass_read      lists, `windlass status`, `windlass health`, `windlass top`, `windlass doctor`. No API tokens
--   windlass_admin     operators and `windlass web`: all rows, API tokens among them. DDL (`migrate`, `broker setup`, `broker off`)
--                      belongs to the owner alone
--
-- They cannot log in. Give each program a user of its own:
--   CREATE ROLE shop_api LOGIN PASSWORD '…' IN ROLE windlass_enqueue;

BEGIN;

DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['windlass_enqueue', 'windlass_worker', 'windlass_read', 'windlass_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION '% may not create the role %', current_user, wanted
        USING HINT = 'ask an administrator for: CREATE ROLE ' || wanted || ' NOLOGIN; and likewise for the others';
END
$$;

REVOKE ALL ON SCHEMA windlass FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA windlass FROM PUBLIC;
-- They write the outbox as the owner. Any user who may execute them could hang them on a temporary table of its own.
REVOKE ALL ON FUNCTION windlass.deliver_new(), windlass.deliver_changed() FROM PUBLIC;
GRANT USAGE ON SCHEMA windlass TO windlass_enqueue, windlass_worker, windlass_read, windlass_admin;

-- A producer. INSERT by column: it can write no lease, no output and no error. Keys are compared with the states of their jobs.
-- What an older version of this file granted goes first.
REVOKE ALL ON ALL TABLES IN SCHEMA windlass FROM windlass_enqueue;
GRANT SELECT ON windlass.migrations, windlass.installation, windlass.types TO windlass_enqueue;
GRANT INSERT (id, tenant, queue, type, priority, input, max_attempts, run_at, key, parent, pipeline, phase, phase_rank, trace,
              copied_from, follow_ups, followed, status, key_scope, limits), SELECT (id, status)
   ON windlass.jobs TO windlass_enqueue;
-- UPDATE by column: with a right on the whole table a user can lock it against all others.
GRANT SELECT, INSERT, UPDATE (job, states, until, forever, free, fingerprint, ended_at) ON windlass.keys TO windlass_enqueue;
GRANT SELECT (id, idle, dead, alive_until, queues, types) ON windlass.workers TO windlass_enqueue;

-- A worker, and an admin
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA windlass TO windlass_worker, windlass_admin;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA windlass TO windlass_worker, windlass_admin;
GRANT EXECUTE ON FUNCTION windlass.add_partition(text, date), windlass.drop_partition(text, date)
   TO windlass_worker, windlass_admin;
REVOKE ALL ON windlass.tokens FROM windlass_worker;
REVOKE INSERT, UPDATE, DELETE ON windlass.migrations FROM windlass_worker, windlass_admin;

-- A reader
GRANT SELECT ON ALL TABLES IN SCHEMA windlass TO windlass_read;
REVOKE ALL ON windlass.tokens FROM windlass_read;

-- What later migrations create, as the schema's owner. A table with secrets in it gets its REVOKE in its own migration.
DO $$
DECLARE
    owner text := (SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'windlass');
    later text := format('ALTER DEFAULT PRIVILEGES FOR ROLE %s IN SCHEMA windlass GRANT ', owner);
BEGIN
    EXECUTE later || 'SELECT, INSERT, UPDATE, DELETE ON TABLES TO windlass_worker, windlass_admin';
    EXECUTE later || 'SELECT ON TABLES TO windlass_read';
    EXECUTE later || 'USAGE, SELECT ON SEQUENCES TO windlass_worker, windlass_admin';
END
$$;

COMMIT;
