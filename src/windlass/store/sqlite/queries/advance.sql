-- To the next phase of a pipeline, under the lease. What somebody asked to cancel stays, for settle_cancelled.sql.
--
--   the parameters of settle.sql, and :type, :queue, :phase, :phase_rank, :max_attempts, :limits
UPDATE windlass_jobs
   SET status = 'queued', token = NULL, worker = NULL, run_at = coalesce(:now + :delay, min(run_at, :now)), updated_at = :now, type = :type, queue = :queue,
       phase = :phase, phase_rank = :phase_rank, max_attempts = :max_attempts, attempt = 0, crashes = 0,
       output = :output, error = NULL, reason = NULL, attempts = remember(attempts, :entry), total = :total,
       processed = :processed, failed = :failed, cost_cents = max(cost_cents, :cost_cents), started_at = :now - :elapsed,
       limits = :limits
 WHERE id = :id AND token = :token AND status IN (SELECT value FROM json_each(:sources)) AND NOT cancel_requested
