-- Claimable jobs that no claim takes (due.sql says which), with the id of one; and how many seconds the newest time in
-- the store lies ahead of the clock.   :now
SELECT (SELECT count(*) FROM windlass_jobs AS jobs WHERE status IN ('queued', 'failed')
           AND NOT (fence < 9223372036854775806 AND attempt < 2147483646 AND run_at >= -62135596800000000
                    AND created_at BETWEEN -62135596800000000 AND 253402300799000000
                    AND coalesce(finished_at, 0) BETWEEN -62135596800000000 AND 253402300799000000)),
       (SELECT min(id) FROM windlass_jobs AS jobs WHERE status IN ('queued', 'failed')
           AND NOT (fence < 9223372036854775806 AND attempt < 2147483646 AND run_at >= -62135596800000000
                    AND created_at BETWEEN -62135596800000000 AND 253402300799000000
                    AND coalesce(finished_at, 0) BETWEEN -62135596800000000 AND 253402300799000000)),
       (SELECT max(max(coalesce(max(created_at), 0), coalesce(max(updated_at), 0)),
                   (SELECT seen_at FROM windlass_installation))
          FROM windlass_jobs
         WHERE created_at < :now + 315360000000000 AND updated_at < :now + 315360000000000) - :now
