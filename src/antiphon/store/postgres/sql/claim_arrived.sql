-- Claims tasks of some tools of the servers $9 like claim_by_tool.sql, but only tasks that became claimable since the transaction $6, and
-- tasks whose lease ended after $7. For a process that has claimed all others. claim_by_tool.sql without positions finds
-- the same, but takes half as long again, and an idle worker claims every second.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
arrived AS MATERIALIZED (
    SELECT key, server, tool, coalesce(turn, created) AS turn, freed FROM tasks
    WHERE CASE WHEN phase = 'ready' AND lease = 0 THEN freed END >= $6::bigint
    ORDER BY CASE WHEN phase = 'ready' AND lease = 0 THEN freed END LIMIT $8::bigint + 1
),
search AS MATERIALIZED (
    SELECT count(*) > $8::bigint AS is_partial FROM arrived
),
claimable AS MATERIALIZED (
    SELECT tasks.key, arrived.turn FROM arrived JOIN tasks ON tasks.key = arrived.key
    WHERE arrived.tool = ANY ($5::text[]) AND arrived.server = ANY ($9::text[]) AND tasks.phase || '' = 'ready' AND tasks.lease + 0 = 0
        AND NOT (SELECT is_partial FROM search)
    ORDER BY arrived.turn, arrived.key LIMIT $4::bigint FOR UPDATE OF tasks SKIP LOCKED
),
lease_expired AS MATERIALIZED (
    SELECT key, coalesce(turn, created) AS turn, lease FROM tasks
    WHERE lease > least($7::bigint, (SELECT now FROM moment) - 2000) AND lease > 0
        AND lease <= (SELECT now FROM moment) AND tool = ANY ($5::text[]) AND server = ANY ($9::text[])
        AND NOT (SELECT is_partial FROM search)
    ORDER BY lease LIMIT 1000 + $4::bigint FOR UPDATE SKIP LOCKED
),
chosen AS MATERIALIZED (
    SELECT key FROM (
        SELECT key, turn FROM claimable UNION ALL SELECT key, turn FROM lease_expired
    ) AS candidates
    ORDER BY turn, key LIMIT $4::bigint
),
claimed AS (
    UPDATE tasks SET token = tasks.token + 1, worker = $2::text, lease = moment.now + $3::bigint
    FROM moment, chosen WHERE tasks.key = chosen.key
    RETURNING tasks.key, tasks.id, tasks.principal, tasks.tool, tasks.phase, tasks.version, tasks.created,
        tasks.updated, tasks.expires, tasks.format, tasks.head, tasks.server, tasks.sharer, tasks.token, tasks.turn
),
remaining AS MATERIALIZED (
    SELECT server, tool, turn, key, freed FROM arrived
    WHERE tool = ANY ($5::text[]) AND server = ANY ($9::text[]) AND key NOT IN (SELECT key FROM chosen)
),
limits AS (
    SELECT
        search.is_partial,
        moment.now,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS settled,
        (SELECT array_agg(ROW (server, tool, turn, key)) FROM remaining) AS remaining,
        (SELECT min(freed) FROM remaining) AS first_freed,
        (SELECT min(lease) FROM lease_expired WHERE key NOT IN (SELECT key FROM chosen)) AS first_ended
    FROM search, moment
)
SELECT limits.*, NULL AS next_search, claimed.* FROM limits FULL JOIN claimed ON false
