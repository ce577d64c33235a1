-- API tokens. The secret of a token is not stored, only its SHA-256 in hex.
CREATE TABLE windlass_tokens (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    hash       TEXT    NOT NULL UNIQUE,
    role       TEXT    NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    tenant     TEXT,                                         -- null: all tenants
    created_at INTEGER NOT NULL,
    created_by TEXT,
    expires_at INTEGER,                                      -- null: never
    revoked_at INTEGER,
    revoked_by TEXT,
    CHECK (tenant IS NULL OR role <> 'admin')
) STRICT;
CREATE UNIQUE INDEX windlass_tokens_name ON windlass_tokens (name) WHERE revoked_at IS NULL;

-- Pages of the audit of one actor, and of one tenant. Both are partial: each end of a job is a row of the audit, and a
-- row without an actor and of the default tenant, as most programs write, is in neither of them.
CREATE INDEX windlass_audit_actor ON windlass_audit (actor, number) WHERE actor IS NOT NULL;
CREATE INDEX windlass_audit_tenant ON windlass_audit (tenant, number) WHERE tenant <> 'default';
