-- What each worker reports with its beat: its pools, its processors and its jobs in memory, as JSON (model/processors.py).
ALTER TABLE windlass_workers ADD COLUMN pools TEXT;              -- null: not reported yet
ALTER TABLE windlass_workers ADD COLUMN version TEXT;            -- of the user's program: the setting `version`
ALTER TABLE windlass_workers ADD COLUMN windlass TEXT;           -- the version of Windlass

-- Jobs of pipelines that wait for a claim, by phase. A job without a pipeline is in no entry. Its condition is one that no
-- other statement has: a claim must go by the index windlass_jobs_claim.
CREATE INDEX windlass_jobs_in_phases ON windlass_jobs (pipeline, phase_rank, phase, run_at)
    WHERE coalesce(pipeline, '') <> '' AND status IN ('queued', 'failed');
