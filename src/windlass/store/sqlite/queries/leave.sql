-- Take a job that was just copied to the history from the jobs, under the same lease.
DELETE FROM windlass_jobs WHERE id = :id AND token = :token
