-- Gets tasks of some servers that have not ended although their time has passed, earliest first.
SELECT found.* FROM unnest($3::text[]) AS wanted (server) CROSS JOIN LATERAL (
    SELECT key, id, principal, tool, phase, version, created, updated, expires, format, head, server, wakes, tags, sharer
    FROM tasks WHERE server = wanted.server AND phase <> 'ended'
        AND expires <= coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    ORDER BY expires, key LIMIT $2::bigint
) AS found ORDER BY found.expires, found.key LIMIT $2::bigint
