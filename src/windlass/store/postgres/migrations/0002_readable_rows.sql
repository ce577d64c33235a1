-- Refuse rows that no program can read or claim where they are written: one time beyond the year 9999, or one fence
-- that cannot grow, must not keep other jobs from being claimed. The writer's error shows the names of the constraints.

-- Repair rows that were written before: a time becomes the nearest that can be read, a counter a value that can grow.
UPDATE windlass.jobs
   SET run_at = least(greatest(run_at, '0001-01-01 00:00+00'), '9999-12-31 23:59:59+00'),
       created_at = least(greatest(created_at, '0001-01-01 00:00+00'), '9999-12-31 23:59:59+00'),
       updated_at = least(greatest(updated_at, '0001-01-01 00:00+00'), windlass.now()),
       claimed_at = CASE WHEN claimed_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59+00' THEN claimed_at END,
       started_at = CASE WHEN started_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59+00' THEN started_at END,
       finished_at = CASE WHEN finished_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59+00'
                          THEN finished_at END,
       fence = least(fence, 4611686018427387904),
       attempt = CASE WHEN attempt < 2147483646 THEN attempt ELSE max_attempts END
 WHERE least(run_at, created_at, updated_at, claimed_at, started_at, finished_at) < '0001-01-01 00:00+00'
    OR greatest(run_at, created_at, updated_at, claimed_at, started_at, finished_at) > '9999-12-31 23:59:59+00'
    OR fence >= 9223372036854775806 OR attempt >= 2147483646;

ALTER TABLE windlass.jobs
    ADD CONSTRAINT jobs_times_are_in_the_years_1_to_9999 CHECK (
        least(run_at, created_at, updated_at, claimed_at, started_at, finished_at) >= '0001-01-01 00:00+00'
        AND greatest(run_at, created_at, updated_at, claimed_at, started_at, finished_at) < '10000-01-01 00:00+00'),
    ADD CONSTRAINT jobs_fence_is_below_its_maximum CHECK (fence < 9223372036854775807),
    ADD CONSTRAINT jobs_attempt_is_below_its_maximum CHECK (attempt < 2147483647);

-- The latest time that the clock has shown to a sweep: it reveals a clock that was set back since.
ALTER TABLE windlass.installation ADD COLUMN seen_at timestamptz NOT NULL DEFAULT '2000-01-01 00:00+00';
