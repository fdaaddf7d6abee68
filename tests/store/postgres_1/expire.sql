-- Forgets some tasks whose time is over, with their logs: fewer if the logs are long.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
due AS MATERIALIZED (
    SELECT key, expires, version FROM tasks
    WHERE expires <= (SELECT now FROM moment)
    ORDER BY expires, key LIMIT $2::bigint FOR UPDATE SKIP LOCKED
),
doomed AS MATERIALIZED (
    SELECT key FROM (
        SELECT key, sum(version) OVER (ORDER BY expires, key) - version AS before FROM due
    ) AS added WHERE before < $3::bigint
),
gone AS (
    DELETE FROM tasks USING doomed WHERE tasks.key = doomed.key
    RETURNING tasks.key, tasks.id, tasks.principal, tasks.tool, tasks.phase, tasks.version, tasks.created,
        tasks.updated, tasks.expires, tasks.format, tasks.head
),
emptied AS (
    DELETE FROM entries USING doomed WHERE entries.task = doomed.key
),
counted AS (
    INSERT INTO counts AS kept (slot, phase, tasks)
    SELECT $4::integer, phase, -count(*) FROM gone GROUP BY phase
    ON CONFLICT (slot, phase) DO UPDATE SET tasks = kept.tasks + excluded.tasks
),
touched AS (
    SELECT
        left(encode(sha256(convert_to(id, 'UTF8')), 'hex'), 16) AS mark,
        (row_number() OVER () - 1) / 400 AS portion
    FROM gone
),
told AS (
    SELECT pg_notify($5::text, $6::text || '0' || string_agg(mark, ',')) AS notified
    FROM touched GROUP BY portion
)
SELECT gone.key, gone.id, gone.principal, gone.tool, gone.phase, gone.version, gone.created, gone.updated,
    gone.expires, gone.format, gone.head, (SELECT count(notified::text) FROM told) AS notices
FROM gone ORDER BY gone.expires, gone.key
