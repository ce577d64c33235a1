-- One key.   :key
SELECT most, used, period, burst, next_at, held_until FROM windlass_turnstiles WHERE key = :key
