-- Lists the records of one principal on some servers below a position, newest first. $6 are the servers; NULL for all
-- servers on which the principal has tasks, found with one lookup in the index for each.
WITH RECURSIVE named (server) AS (
    SELECT min(server) FROM tasks WHERE principal = $5::text AND $6::text[] IS NULL
    UNION ALL
    SELECT (SELECT min(server) FROM tasks WHERE principal = $5::text AND server > named.server)
    FROM named WHERE server IS NOT NULL
),
wanted (server) AS (
    SELECT server FROM named WHERE server IS NOT NULL UNION ALL SELECT unnest($6::text[])
)
SELECT found.* FROM wanted CROSS JOIN LATERAL (
    SELECT key, id, principal, tool, phase, version, created, updated, expires, format, head, server
    FROM tasks WHERE principal = $5::text AND server = wanted.server AND (created, key) < ($1::bigint, $2::bigint) AND (
        phase <> 'ended' OR expires IS NULL
        OR expires > coalesce($4::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    )
    ORDER BY created DESC, key DESC LIMIT $3::bigint
) AS found ORDER BY found.created DESC, found.key DESC LIMIT $3::bigint
