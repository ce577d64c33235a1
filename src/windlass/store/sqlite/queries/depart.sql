-- Take a job that archive.sql copied to the history from the jobs.
DELETE FROM windlass_jobs WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))
