-- What each worker reports with its beat: its pools, its processors and its jobs in memory, as JSON (model/processors.py). It
-- is text: no statement looks into it.
ALTER TABLE windlass.workers
    ADD COLUMN pools    text,                                  -- null: not reported yet
    ADD COLUMN version  text,                                  -- of the user's program: the setting `version`
    ADD COLUMN windlass text;                                  -- the version of Windlass

-- Jobs of pipelines that wait for a claim, by phase. A job without a pipeline is in no entry. Its condition is one that no
-- other statement has: a claim must go by the index jobs_claim.
CREATE INDEX jobs_in_phases ON windlass.jobs (pipeline, phase_rank, phase, run_at)
    WHERE coalesce(pipeline, '') <> '' AND status IN ('queued', 'failed');
