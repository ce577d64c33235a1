UPDATE windlass.jobs
   SET status = 'running', token = $3::uuid, fence = fence + 1, worker = $1::uuid, attempt = attempt + 1,
       claimed_at = windlass.now(), started_at = windlass.now(), updated_at = windlass.now()
  -- ANY, so that each id is looked up and no join can walk over the whole index instead (ARCHITECTURE.md, look-ups).
  -- Counted, so that all are found before the first is written: what this statement has written already is left out of a
  -- lane's second offer, and would be skipped there once more.
  FROM (SELECT id, aged, count(*) OVER () AS found
          FROM (SELECT id, true AS aged FROM oldest UNION ALL SELECT id, false FROM picked) AS found) AS chosen
 WHERE jobs.id = ANY (ARRAY[chosen.id]) AND chosen.found > 0
RETURNING {columns}, chosen.aged
