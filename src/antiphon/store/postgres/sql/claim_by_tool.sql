-- Claims like claim.sql, but only tasks of some tools, with one index lookup for each tool.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
claimable AS MATERIALIZED (
    SELECT found.key, found.created FROM unnest($5::text[]) AS wanted (tool) CROSS JOIN LATERAL (
        SELECT key, created FROM tasks
        WHERE tool = wanted.tool AND phase = 'ready' AND lease = 0
        ORDER BY created, key LIMIT $4::bigint FOR UPDATE SKIP LOCKED
    ) AS found
),
lease_expired AS MATERIALIZED (
    SELECT key, created FROM tasks
    WHERE lease > 0 AND lease <= (SELECT now FROM moment) AND tool = ANY ($5::text[])
    ORDER BY lease LIMIT 1000 FOR UPDATE SKIP LOCKED
),
chosen AS MATERIALIZED (
    SELECT key FROM (
        SELECT key, created FROM claimable UNION ALL SELECT key, created FROM lease_expired
    ) AS candidates
    ORDER BY created, key LIMIT $4::bigint
)
UPDATE tasks SET token = tasks.token + 1, worker = $2::text, lease = moment.now + $3::bigint
FROM moment, chosen WHERE tasks.key = chosen.key
RETURNING tasks.key, tasks.id, tasks.principal, tasks.tool, tasks.phase, tasks.version, tasks.created,
    tasks.updated, tasks.expires, tasks.format, tasks.head, tasks.token
