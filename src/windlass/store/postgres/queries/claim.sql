UPDATE windlass.jobs
   SET status = 'running', token = $3::uuid, fence = fence + 1, worker = $1::uuid, attempt = attempt + 1,
       claimed_at = windlass.now(), started_at = windlass.now(), updated_at = windlass.now()
  FROM (SELECT id, true AS aged FROM oldest UNION ALL SELECT id, false FROM picked) AS chosen
 WHERE jobs.id = chosen.id
RETURNING {columns}, chosen.aged
