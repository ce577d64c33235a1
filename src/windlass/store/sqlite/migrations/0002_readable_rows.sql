-- Refuse rows that no program can read or claim where they are written: one time beyond the year 9999, or one fence
-- that cannot grow, must not keep other jobs from being claimed. Triggers, because SQLite cannot add a CHECK to a table
-- that exists.

-- Repair rows that were written before: a time becomes the nearest that can be read, a counter a value that can grow.
UPDATE windlass_jobs
   SET run_at = min(max(run_at, -62135596800000000), 253402300799000000),
       created_at = min(max(created_at, -62135596800000000), 253402300799000000),
       updated_at = min(max(updated_at, -62135596800000000), CAST(strftime('%s', 'now') AS INTEGER) * 1000000),
       claimed_at = iif(claimed_at BETWEEN -62135596800000000 AND 253402300799000000, claimed_at, NULL),
       started_at = iif(started_at BETWEEN -62135596800000000 AND 253402300799000000, started_at, NULL),
       finished_at = iif(finished_at BETWEEN -62135596800000000 AND 253402300799000000, finished_at, NULL),
       fence = min(fence, 4611686018427387904),
       attempt = iif(attempt < 2147483646, attempt, max_attempts)
 WHERE min(run_at, created_at, updated_at, coalesce(claimed_at, 0), coalesce(started_at, 0), coalesce(finished_at, 0))
           < -62135596800000000
    OR max(run_at, created_at, updated_at, coalesce(claimed_at, 0), coalesce(started_at, 0), coalesce(finished_at, 0))
           > 253402300799000000
    OR fence >= 9223372036854775806 OR attempt >= 2147483646;

CREATE TRIGGER windlass_jobs_sound_when_new BEFORE INSERT ON windlass_jobs
WHEN min(NEW.run_at, NEW.created_at, NEW.updated_at) < -62135596800000000
  OR max(NEW.run_at, NEW.created_at, NEW.updated_at) >= 253402300800000000
  OR NEW.fence >= 9223372036854775807 OR NEW.attempt >= 2147483647
BEGIN
    SELECT RAISE(ABORT, 'windlass_jobs: times are in the years 1 to 9999, fence and attempt below their maximum');
END;
CREATE TRIGGER windlass_jobs_sound_when_changed
BEFORE UPDATE OF run_at, created_at, updated_at, claimed_at, started_at, finished_at, fence, attempt ON windlass_jobs
WHEN min(NEW.run_at, NEW.created_at, NEW.updated_at, coalesce(NEW.claimed_at, 0), coalesce(NEW.started_at, 0),
         coalesce(NEW.finished_at, 0)) < -62135596800000000
  OR max(NEW.run_at, NEW.created_at, NEW.updated_at, coalesce(NEW.claimed_at, 0), coalesce(NEW.started_at, 0),
         coalesce(NEW.finished_at, 0)) >= 253402300800000000
  OR NEW.fence >= 9223372036854775807 OR NEW.attempt >= 2147483647
BEGIN
    SELECT RAISE(ABORT, 'windlass_jobs: times are in the years 1 to 9999, fence and attempt below their maximum');
END;

-- The latest time that the clock has shown to a sweep: it reveals a clock that was set back since.
ALTER TABLE windlass_installation ADD COLUMN seen_at INTEGER NOT NULL DEFAULT 0;
