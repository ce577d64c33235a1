-- Until the commit, nobody else closes a round of waits.   $1 []
SELECT pg_advisory_xact_lock(7745966692414833) WHERE CAST($1 AS json) IS NOT NULL
