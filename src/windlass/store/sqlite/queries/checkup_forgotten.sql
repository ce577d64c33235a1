-- Live workers that name fewer jobs than name them. Counted are jobs that were claimed well before the worker last told how
-- many it holds: all of them were held then, whatever has ended since.   :answer a claim's answer may take so long   :now
SELECT workers.name, workers.held, count(*)
  FROM windlass_workers AS workers
  JOIN windlass_jobs AS jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE NOT workers.dead AND workers.alive_until > :now
   AND jobs.claimed_at < workers.held_at - :answer
 GROUP BY workers.id
HAVING count(*) > workers.held
 ORDER BY workers.name
