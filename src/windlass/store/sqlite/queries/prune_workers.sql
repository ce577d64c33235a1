-- A dead worker's row goes when no job names it any more, never before: its row is what marks its jobs as orphans.
--
--   :now   :mourning how long the row stays visible after the death, in microseconds
DELETE FROM windlass_workers
 WHERE dead AND alive_until < :now - :mourning
   AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs
                    WHERE jobs.worker = windlass_workers.id AND jobs.status = 'running')
