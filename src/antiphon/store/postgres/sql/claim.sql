-- Claims the claimable tasks with the smallest turns, of all tools or of all servers, and skips the ones that other processes are
-- claiming. $5 and $6 are the tools and servers, NULL for all. Workers name their tools and their server
-- (claim_by_tool.sql), so this statement does without the limits of that search.
-- A task with an expired lease is claimable, and keeps its place in the order. Up to 1000 of them are
-- considered, so that a claim after a long pause does not lock too many rows.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
claimable AS MATERIALIZED (
    SELECT key, coalesce(turn, created) AS turn FROM tasks
    WHERE phase = 'ready' AND lease = 0
        AND ($5::text[] IS NULL OR tool = ANY ($5::text[])) AND ($6::text[] IS NULL OR server = ANY ($6::text[]))
    ORDER BY coalesce(turn, created), key LIMIT $4::bigint FOR UPDATE SKIP LOCKED
),
lease_expired AS MATERIALIZED (
    SELECT key, coalesce(turn, created) AS turn FROM tasks
    WHERE lease > 0 AND lease <= (SELECT now FROM moment)
        AND ($5::text[] IS NULL OR tool = ANY ($5::text[])) AND ($6::text[] IS NULL OR server = ANY ($6::text[]))
    ORDER BY lease LIMIT 1000 FOR UPDATE SKIP LOCKED
),
chosen AS MATERIALIZED (
    SELECT key FROM (
        SELECT key, turn FROM claimable UNION ALL SELECT key, turn FROM lease_expired
    ) AS candidates
    ORDER BY turn, key LIMIT $4::bigint
)
UPDATE tasks SET token = tasks.token + 1, worker = $2::text, lease = moment.now + $3::bigint
FROM moment, chosen WHERE tasks.key = chosen.key
RETURNING tasks.key, tasks.id, tasks.principal, tasks.tool, tasks.phase, tasks.version, tasks.created,
    tasks.updated, tasks.expires, tasks.format, tasks.head, tasks.server, tasks.sharer, tasks.token, tasks.turn, moment.now
