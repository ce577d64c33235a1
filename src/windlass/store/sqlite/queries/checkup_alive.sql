-- How many workers are alive.   :now
SELECT count(*) FROM windlass_workers WHERE NOT dead AND alive_until > :now
