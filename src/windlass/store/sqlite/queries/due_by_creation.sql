-- As due.sql, for the steady pace: by creation.
--
--   :queue, :phase_rank, :priority the lane   :limit at most so many   :types a JSON array
--   :suspects with, without or only   :rest in microseconds   :now
--
-- No index gives this order. The steady pace claims ten jobs a minute and can afford to sort the lane.
SELECT jobs.created_at, jobs.id
  FROM windlass_jobs AS jobs
 WHERE jobs.queue = :queue AND jobs.phase_rank = :phase_rank AND jobs.priority = :priority
   AND jobs.status IN ('queued', 'failed') AND jobs.run_at <= :now
   -- place of types: unknown ones are skipped without a lease or an attempt
   AND jobs.type IN (SELECT value FROM json_each(:types))
   -- place of gates and budgets: a type, a tenant
   AND jobs.type NOT IN (SELECT name FROM windlass_gates WHERE kind = 'type' AND state <> 'open')
   AND jobs.tenant NOT IN (SELECT name FROM windlass_gates WHERE kind = 'tenant' AND state <> 'open')
   -- place of limits: keys that are full
   AND CASE :suspects WHEN 'with' THEN 1 WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
   AND jobs.updated_at <= :now - :rest
   AND NOT jobs.cancel_requested
 -- place of fairness: tenants by weight come between the lane and created_at
 ORDER BY jobs.created_at, jobs.id
 LIMIT :limit
