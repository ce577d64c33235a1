-- API tokens, each with the hash of its secret.

-- fragment: live_token
revoked_at IS NULL AND coalesce(expires_at > windlass.now(), true)

-- fragment: token_columns
-- A token without its hash. Times are microseconds since the epoch.
id, name, role, tenant, (extract(epoch FROM created_at) * 1000000)::bigint, created_by,
       (extract(epoch FROM expires_at) * 1000000)::bigint, (extract(epoch FROM revoked_at) * 1000000)::bigint, revoked_by,
       ({live_token})

-- name: create_token
-- Write a token. Returns its id; no row if a token with the name is not revoked.
--
--   $1 [{id, name, hash, role, tenant, expires, actor}], `expires` in seconds from now
INSERT INTO windlass.tokens (id, name, hash, role, tenant, expires_at, created_by)
SELECT id, name, hash, role, tenant, windlass.now() + make_interval(secs => expires), actor
  FROM json_to_recordset(CAST($1 AS json))
    AS new (id uuid, name text, hash text, role text, tenant text, expires float8, actor text)
    ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
RETURNING id

-- name: revoke_expired_token
-- Revoke the expired token of a name that a new token needs. Returns its name.
--
--   $1 [{name, actor}]
UPDATE windlass.tokens
   SET revoked_at = windlass.now(), revoked_by = new.actor
  FROM json_to_recordset(CAST($1 AS json)) AS new (name text, actor text)
 WHERE tokens.name = new.name AND revoked_at IS NULL AND expires_at <= windlass.now()
RETURNING tokens.name

-- name: tokens
-- List tokens, live ones first.
SELECT {token_columns}
  FROM windlass.tokens
 ORDER BY {live_token} DESC, id DESC
 LIMIT 1000

-- name: revoke_token
-- Revoke the token of a name or an id, unless it was revoked before. Returns its record.
--
--   $1 [{named, actor}]
UPDATE windlass.tokens
   SET revoked_at = windlass.now(), revoked_by = CAST($1 AS json) -> 0 ->> 'actor'
 WHERE revoked_at IS NULL
   AND CAST($1 AS json) -> 0 ->> 'named' IN (name, id::text)
RETURNING {token_columns}

-- name: find_token
-- Read the live token with this hash.
--
--   $1 [hash]
SELECT {token_columns}
  FROM windlass.tokens
 WHERE hash = CAST($1 AS json) ->> 0 AND {live_token}

-- name: any_token
-- Return a row if a token is live.
SELECT 1 FROM windlass.tokens WHERE {live_token} LIMIT 1
