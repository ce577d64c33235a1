-- take_keys.sql has taken over what could be.   ?1 [{scope, key, …}]   ?2 now
SELECT NULL, NULL, NULL, NULL WHERE ?1 IS NULL
