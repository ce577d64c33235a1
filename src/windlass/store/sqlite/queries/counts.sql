-- Jobs by state, in one snapshot.
SELECT status, count(*) FROM windlass_jobs GROUP BY status
UNION ALL
SELECT status, count(*) FROM windlass_history GROUP BY status
