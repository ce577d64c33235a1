-- The clock was set back: a schedule goes on with its next tick from now. What was noted of ticks in the future of the clock
-- is forgotten, or they could not fire when their time comes.   $1 [{name, next}], in microseconds since the epoch
WITH turned AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS turned (name text, next bigint)
), forgotten AS (
    DELETE FROM windlass.ticks
     WHERE schedule = (SELECT name FROM turned) AND at > windlass.now() AND outcome <> 'by hand'
)
UPDATE windlass.schedules
   SET next_at = timestamptz 'epoch' + (SELECT next FROM turned) * interval '1 microsecond',
       last_at = CASE WHEN last_at <= windlass.now() THEN last_at END, updated_at = windlass.now()
 WHERE name = (SELECT name FROM turned)
