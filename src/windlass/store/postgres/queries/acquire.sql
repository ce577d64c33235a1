-- A token of a bucket: seconds until its time, and whether it was taken; no row for a key that nobody declared. A limit
-- has no tokens: it only knows whether somebody holds back.   $1 [{key, most}]
WITH wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS wanted (key text, most float8)
), bucket AS MATERIALIZED (
    SELECT turnstiles.key, turnstiles.period, turnstiles.burst, wanted.most,
           greatest(turnstiles.next_at, windlass.now()) AS from_at,
           greatest(0, extract(epoch FROM greatest(
               turnstiles.next_at - make_interval(secs => (turnstiles.burst - 1) * coalesce(turnstiles.period, 0)),
               turnstiles.held_until) - windlass.now())::float8) AS wait
      FROM wanted
      JOIN windlass.turnstiles ON turnstiles.key = ANY (ARRAY[wanted.key])
       FOR UPDATE OF turnstiles
), taken AS (
    UPDATE windlass.turnstiles
       SET next_at = bucket.from_at + make_interval(secs => coalesce(bucket.period, 0)), touched_at = windlass.now()
      FROM bucket
     WHERE turnstiles.key = ANY (ARRAY[bucket.key]) AND bucket.wait <= bucket.most
 RETURNING turnstiles.key
)
SELECT bucket.wait, EXISTS (SELECT FROM taken) FROM bucket
