-- Claims the oldest claimable tasks of all tools, and skips the ones that other processes are claiming.
-- A task with an expired lease is claimable, and keeps its place in the order. Up to 1000 of them are
-- considered, so that a claim after a long pause does not lock too many rows.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
claimable AS MATERIALIZED (
    SELECT key, created FROM tasks
    WHERE phase = 'ready' AND lease = 0
    ORDER BY created, key LIMIT $4::bigint FOR UPDATE SKIP LOCKED
),
lease_expired AS MATERIALIZED (
    SELECT key, created FROM tasks
    WHERE lease > 0 AND lease <= (SELECT now FROM moment)
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
