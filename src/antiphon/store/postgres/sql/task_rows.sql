-- Gets tasks without their heads, expired ones too, to find out why an append was refused.
SELECT key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease, server,
    coalesce($2::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
FROM tasks WHERE id = ANY ($1::text[])
