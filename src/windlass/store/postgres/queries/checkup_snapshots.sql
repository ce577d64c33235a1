-- Who keeps VACUUM from removing dead rows: transactions of this database that are older than $1 seconds and hold a
-- snapshot or wrote something, prepared transactions nobody finished, and replication slots left behind by $2
-- transactions. A vacuum's own snapshot holds nothing back.
SELECT 'session' AS kind, pid::text AS name, usename::text AS owner, application_name, state,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age, left(query, 80) AS query
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
   AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
   AND xact_start < clock_timestamp() - make_interval(secs => $1::float8)
UNION ALL
SELECT 'prepared', gid, owner::text, NULL, NULL, extract(epoch FROM clock_timestamp() - prepared)::float8, NULL
  FROM pg_prepared_xacts
 WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1::float8)
UNION ALL
SELECT 'slot', slot_name::text, NULL, plugin::text, CASE WHEN active THEN 'active' ELSE 'inactive' END,
       greatest(age(xmin), age(catalog_xmin))::float8, NULL
  FROM pg_replication_slots
 WHERE greatest(age(xmin), age(catalog_xmin)) > $2::int
 ORDER BY age DESC
 LIMIT 20
