-- How many leases a worker says it holds, told with its beat: `windlass doctor` compares it with the jobs that name it. A
-- job that its worker forgot would run for ever, because its worker is alive.
ALTER TABLE windlass_workers ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_workers ADD COLUMN held_at INTEGER;
