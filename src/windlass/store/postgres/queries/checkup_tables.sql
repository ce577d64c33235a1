-- The tables in one row: autovacuum switched off, dead rows, broken or missing indexes, the history's partitions.
SELECT coalesce((SELECT 'autovacuum_enabled=false' = ANY (reloptions) FROM pg_class
                  WHERE oid = 'windlass.jobs'::regclass), false) AS autovacuum_off,
       (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'windlass.jobs'::regclass) AS dead_rows,
       (SELECT n_live_tup FROM pg_stat_user_tables WHERE relid = 'windlass.jobs'::regclass) AS live_rows,
       ARRAY (SELECT wanted.name
                FROM unnest(ARRAY['jobs_pkey', 'jobs_claim', 'jobs_parked', 'jobs_running', 'jobs_cancel', 'history_id'])
                     AS wanted (name)
               WHERE NOT EXISTS (
                      SELECT FROM pg_index
                       WHERE indexrelid = to_regclass('windlass.' || wanted.name) AND indisvalid)) AS broken_indexes,
       EXISTS (SELECT FROM windlass.history_default) AS default_used,
       to_regclass('windlass.history_' || to_char((windlass.now() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD'))
           IS NOT NULL AS prepared,
       (SELECT count(*) FROM windlass.workers WHERE NOT dead AND alive_until > windlass.now()) AS alive
