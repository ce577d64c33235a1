-- Rows for keys that are met for the first time, where their name is declared.   ?1 [key]   ?2 now
INSERT INTO windlass_turnstiles (key, name, most, period, burst, touched_at)
SELECT wanted.value, limits.name, limits.most, limits.period, limits.burst, ?2
  FROM json_each(?1) AS wanted
  JOIN windlass_limits AS limits ON limits.name = substr(wanted.value, 1, instr(wanted.value || ':', ':') - 1)
 WHERE NOT EXISTS (SELECT 1 FROM windlass_turnstiles AS turnstiles WHERE turnstiles.key = wanted.value)
