
           AND (NOT lane.limited OR (
                jobs.limits[1] NOT IN (SELECT key FROM crowded)
                AND (cardinality(jobs.limits) = 1 OR NOT EXISTS (
                     SELECT FROM unnest(jobs.limits) AS need (key) WHERE need.key IN (SELECT key FROM crowded)))))
