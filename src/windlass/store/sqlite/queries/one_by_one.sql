-- Here every writer is alone anyway.   ?1 []   ?2 now
SELECT 1 WHERE ?1 IS NULL
