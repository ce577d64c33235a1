-- Waits whose time was up begin anew: the mark, which ends in a space, and the deadline of that name.   $1 [id]
DELETE FROM windlass.steps
 WHERE job = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
   AND (name LIKE '% '
        OR EXISTS (SELECT FROM windlass.steps AS mark WHERE mark.job = steps.job AND mark.name = steps.name || ' '
                    OFFSET 0))
