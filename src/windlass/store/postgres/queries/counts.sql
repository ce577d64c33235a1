SELECT status, count(*)::bigint AS jobs FROM windlass.jobs GROUP BY status
UNION ALL
SELECT status, count(*)::bigint FROM windlass.history GROUP BY status
