-- API tokens, each with the hash of its secret.

-- fragment: live_token
revoked_at IS NULL AND coalesce(expires_at > ?2, true)

-- fragment: token_columns
-- A token without its hash. Times are microseconds since the epoch.
id, name, role, tenant, created_at, created_by, expires_at, revoked_at, revoked_by, ({live_token})

-- name: create_token
-- Write a token. Returns its id; no row if a token with the name is not revoked.
--   ?1 [{id, name, hash, role, tenant, expires, actor}], `expires` in seconds from now   ?2 now
INSERT INTO windlass_tokens (id, name, hash, role, tenant, created_at, expires_at, created_by)
SELECT value ->> 'id', value ->> 'name', value ->> 'hash', value ->> 'role', value ->> 'tenant', ?2,
       ?2 + CAST((value ->> 'expires') * 1000000 AS INTEGER), value ->> 'actor'
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
RETURNING id

-- name: revoke_expired_token
-- Revoke the expired token of a name that a new token needs. Returns its name.
--   ?1 [{name, actor}]   ?2 now
UPDATE windlass_tokens
   SET revoked_at = ?2, revoked_by = ?1 ->> '$[0].actor'
 WHERE name = ?1 ->> '$[0].name' AND revoked_at IS NULL AND expires_at <= ?2
RETURNING name

-- name: tokens
-- List tokens, live ones first.
--   ?2 now
SELECT {token_columns}
  FROM windlass_tokens
 ORDER BY {live_token} DESC, id DESC
 LIMIT 1000

-- name: revoke_token
-- Revoke the token of a name or an id, unless it was revoked before. Returns its record.
--   ?1 [{named, actor}]   ?2 now
UPDATE windlass_tokens
   SET revoked_at = ?2, revoked_by = ?1 ->> '$[0].actor'
 WHERE revoked_at IS NULL AND ?1 ->> '$[0].named' IN (name, id)
RETURNING {token_columns}

-- name: find_token
-- Read the live token with this hash.
--   ?1 [hash]   ?2 now
SELECT {token_columns}
  FROM windlass_tokens
 WHERE hash = ?1 ->> '$[0]' AND {live_token}

-- name: any_token
-- Return a row if a token is live.
--   ?2 now
SELECT 1 FROM windlass_tokens WHERE {live_token} LIMIT 1
