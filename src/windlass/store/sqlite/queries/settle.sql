-- A transition after which the job stays here, under its lease: fail, bury, wait, release, snooze, advance.
--
--   :id, :token, :sources (the states it may come from) the lease   :status, :delay (microseconds until it is due;
--   null keeps its place), :attempt, :crashes, :error (null keeps the last one), :entry, :reason, :total, :processed, :failed, :cost_cents,
--   :elapsed (microseconds since the start) what the attempt came to   :now
UPDATE windlass_jobs
   SET status = :status, token = NULL, worker = NULL, run_at = coalesce(:now + :delay, min(run_at, :now)),
       attempt = :attempt, crashes = :crashes, error = coalesce(:error, error),
       attempts = remember(attempts, :entry), reason = :reason, total = :total, processed = :processed,
       failed = :failed, cost_cents = max(cost_cents, :cost_cents), updated_at = :now, started_at = :now - :elapsed,
       finished_at = CASE WHEN :status = 'dead' THEN :now END
 WHERE id = :id AND token = :token AND status IN (SELECT value FROM json_each(:sources))
