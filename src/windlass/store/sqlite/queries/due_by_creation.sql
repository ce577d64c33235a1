-- As due.sql, for the steady pace: by creation.
--
--   :queue, :phase_rank, :priority, :tenant, :limited the lane   :limit at most so many, -1 for all
--   :types a JSON array   :suspects with, without or only   :rest in microseconds   :now   :until how far to look
--   :after_at, :after_id begin after this job   :full keys that are known to have no room, a JSON array, or null
--
-- No index gives this order. The steady pace claims ten jobs a minute and can afford to sort the lane.
SELECT jobs.created_at, jobs.id, jobs.limits
  FROM windlass_jobs AS jobs
 WHERE jobs.queue = :queue AND jobs.phase_rank = :phase_rank AND jobs.priority = :priority AND jobs.tenant = :tenant
   AND (jobs.limits IS NOT NULL) = :limited AND jobs.parked_on IS NULL
   AND jobs.status IN ('queued', 'failed') AND jobs.run_at <= :until
   AND (jobs.created_at, jobs.id) > (:after_at, :after_id)
   -- place of time: what is due now, and after a clock was set back what had been due by its own times
   AND (jobs.run_at <= :now OR jobs.run_at <= max(jobs.created_at, jobs.updated_at))
   -- place of types: unknown ones are skipped without a lease or an attempt
   AND jobs.type IN (SELECT value FROM json_each(:types))
   -- place of gates: a type
   AND jobs.type NOT IN (SELECT name FROM windlass_gates WHERE kind = 'type' AND state <> 'open')
   AND CASE :suspects WHEN 'with' THEN 1 WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
   AND (jobs.updated_at <= :now - :rest OR jobs.updated_at > :now)
   AND NOT jobs.cancel_requested
   -- place of rows that no program can read or claim: written before the triggers of the table, or past them
   AND jobs.fence < 9223372036854775806 AND jobs.attempt < 2147483646 AND jobs.run_at >= -62135596800000000
   AND jobs.created_at BETWEEN -62135596800000000 AND 253402300799000000
   AND (jobs.finished_at IS NULL OR jobs.finished_at BETWEEN -62135596800000000 AND 253402300799000000)
   -- place of limits: keys that are full
   AND (:full IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(jobs.limits) AS need
                                      WHERE need.value IN (SELECT value FROM json_each(:full))))
 ORDER BY jobs.created_at, jobs.id
 LIMIT :limit
