-- The schema number that each worker's program knows. null: a program from before this migration, which knows 9 at most. `windlass
-- migrate` does not take the schema two numbers ahead of a live worker.
ALTER TABLE windlass.workers ADD COLUMN IF NOT EXISTS schema_number integer;

-- Partitions of the history and the audit. SECURITY DEFINER, so that the role of a worker need not own the tables; with a
-- fixed search_path, and only for these two tables. Only a day that is over can be dropped.
CREATE FUNCTION windlass.add_partition(parent text, day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
BEGIN
    IF parent NOT IN ('history', 'audit') THEN
        RAISE insufficient_privilege USING MESSAGE = 'only history and audit have partitions';
    END IF;
    EXECUTE format('CREATE TABLE IF NOT EXISTS windlass.%I PARTITION OF windlass.%I FOR VALUES FROM (%L) TO (%L)',
                   parent || '_' || to_char(day, 'YYYYMMDD'), parent, day::timestamptz, (day + 1)::timestamptz);
END
$$;

CREATE FUNCTION windlass.drop_partition(parent text, day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
BEGIN
    IF parent NOT IN ('history', 'audit') OR day >= windlass.now()::date THEN
        RAISE insufficient_privilege USING MESSAGE = 'only past days of history and audit can be dropped';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS windlass.%I', parent || '_' || to_char(day, 'YYYYMMDD'));
END
$$;
REVOKE ALL ON FUNCTION windlass.add_partition(text, date), windlass.drop_partition(text, date) FROM PUBLIC;

-- What a scaler reads (KEDA, deploy/kubernetes): each queue with jobs that wait, and how many of them are due and could start
-- if there were room. Parked jobs wait for a limit, and not for a worker. The queues are found one by one in the claim's
-- index; counts end at 10,001.
CREATE VIEW windlass.queue_depths AS
WITH RECURSIVE found (queue) AS (
    (SELECT queue FROM windlass.jobs WHERE status IN ('queued', 'failed') AND parked_on IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.queue FROM windlass.jobs
             WHERE jobs.status IN ('queued', 'failed') AND jobs.parked_on IS NULL AND jobs.queue > found.queue
             ORDER BY jobs.queue LIMIT 1)
      FROM found
     WHERE found.queue IS NOT NULL
)
SELECT found.queue, counted.due,
       EXISTS (SELECT FROM windlass.gates
                WHERE gates.state <> 'open'
                  AND (gates.kind = 'all' OR (gates.kind = 'queue' AND gates.name = found.queue))) AS closed
  FROM found
 CROSS JOIN LATERAL (
     SELECT count(*) AS due
       FROM (SELECT FROM windlass.jobs
              WHERE jobs.queue = found.queue AND jobs.status IN ('queued', 'failed') AND jobs.parked_on IS NULL
                AND jobs.run_at <= windlass.now()
              LIMIT 10001) AS bounded) AS counted
 WHERE found.queue IS NOT NULL;
