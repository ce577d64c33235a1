-- Progress of running jobs, each under its lease, ids sorted.   $1 ids   $2 tokens   $3 totals   $4 processed   $5 failed
UPDATE windlass.jobs
   SET total = mark.total, processed = mark.processed, failed = mark.failed, updated_at = windlass.now()
  FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::int[]) AS mark (id, token, total, processed, failed)
 WHERE jobs.id = ANY (ARRAY[mark.id]) AND jobs.token = mark.token
