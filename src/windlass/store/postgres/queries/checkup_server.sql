-- The server in one row: its version, its time, the process that answers, and settings that a promise rests on.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS number,
       extract(epoch FROM clock_timestamp())::float8 AS clock,
       pg_backend_pid() AS pid,
       pg_is_in_recovery() AS standby,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('autovacuum') AS autovacuum,
       pg_has_role('pg_read_all_stats', 'usage') AS sees_all
