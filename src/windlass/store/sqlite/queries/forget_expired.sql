-- Waits whose time was up begin anew: the mark, which ends in a space, and the deadline of that name.   ?1 [id]   ?2 now
DELETE FROM windlass_steps
 WHERE job IN (SELECT value FROM json_each(?1))
   AND (name LIKE '% '
        OR EXISTS (SELECT 1 FROM windlass_steps AS mark
                    WHERE mark.job = windlass_steps.job AND mark.name = windlass_steps.name || ' '))
