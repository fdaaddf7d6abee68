-- Lists the records of all principals below a position, newest first. $5 are the servers, NULL for all.
SELECT key, id, principal, tool, phase, version, created, updated, expires, format, head, server
FROM tasks WHERE (created, key) < ($1::bigint, $2::bigint) AND ($5::text[] IS NULL OR server = ANY ($5::text[])) AND (
    phase <> 'ended' OR expires IS NULL
    OR expires > coalesce($4::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
)
ORDER BY created DESC, key DESC LIMIT $3::bigint
