-- A dead worker's row goes when no job names it any more, never before: its row is what marks its jobs as orphans.
DELETE FROM windlass.workers
 WHERE dead AND alive_until < windlass.now() - interval '1 minute'
   AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.worker = workers.id AND jobs.status = 'running' OFFSET 0)
