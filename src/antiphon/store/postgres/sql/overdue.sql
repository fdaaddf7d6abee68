-- Gets tasks that have not ended although their time has passed, earliest first.
SELECT id, principal, tool, phase, version, created, updated, expires, format, head, server, wakes, tags, sharer
FROM tasks WHERE phase <> 'ended'
    AND expires <= coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ORDER BY expires, key LIMIT $2::bigint
