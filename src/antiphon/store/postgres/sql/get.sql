-- Gets records by id. Only an ended task can have expired.
SELECT id, principal, tool, phase, version, created, updated, expires, format, head, server, wakes, tags, sharer
FROM tasks WHERE id = ANY ($1::text[]) AND (
    phase <> 'ended' OR expires IS NULL
    OR expires > coalesce($2::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
)
