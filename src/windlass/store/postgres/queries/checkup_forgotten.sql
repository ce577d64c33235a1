-- Live workers that name fewer jobs than name them. Counted are jobs that were claimed well before the worker last told how
-- many it holds: all of them were held then, whatever has ended since.   $1 seconds that a claim's answer may take
SELECT workers.name, workers.held, count(*)::int
  FROM windlass.workers
  JOIN windlass.jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE NOT workers.dead AND workers.alive_until > windlass.now()
   AND jobs.claimed_at < workers.held_at - make_interval(secs => $1::float8)
 GROUP BY workers.id
HAVING count(*) > workers.held
 ORDER BY workers.name
