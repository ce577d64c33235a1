, crowded AS MATERIALIZED (
    SELECT key
      FROM windlass.turnstiles
     WHERE crowded AND windlass.room(most, used, period, burst, next_at, held_until) = 0
)
