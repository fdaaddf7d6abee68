-- Deletes some ended tasks that expired after $7, with their logs; fewer tasks if the logs are long. A notification
-- names up to 400 tasks, because PostgreSQL allows less than 8000 bytes. One row comes back in any case, for the time.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
expired AS MATERIALIZED (
    SELECT key, expires, version FROM tasks
    WHERE phase = 'ended' AND expires <= (SELECT now FROM moment)
        AND expires > least($7::bigint, (SELECT now FROM moment) - 2000)
    ORDER BY expires, key LIMIT $2::bigint FOR UPDATE SKIP LOCKED
),
chosen AS MATERIALIZED (
    SELECT key FROM (
        SELECT key, sum(version) OVER (ORDER BY expires, key) - version AS before FROM expired
    ) AS summed WHERE before < $3::bigint
),
deleted AS (
    DELETE FROM tasks USING chosen WHERE tasks.key = chosen.key
    RETURNING tasks.key, tasks.id, tasks.principal, tasks.tool, tasks.phase, tasks.version, tasks.created,
        tasks.updated, tasks.expires, tasks.format, tasks.head, tasks.server, tasks.sharer
),
deleted_entries AS (
    DELETE FROM entries USING chosen WHERE entries.task = chosen.key
),
counted AS (
    INSERT INTO counts AS current (slot, phase, tasks)
    SELECT $4::integer, phase, -count(*) FROM deleted GROUP BY phase
    ON CONFLICT (slot, phase) DO UPDATE SET tasks = current.tasks + excluded.tasks
),
digests AS (
    SELECT
        left(encode(sha256(convert_to(id, 'UTF8')), 'hex'), 16) AS digest,
        (row_number() OVER () - 1) / 400 AS portion
    FROM deleted
),
notified AS (
    SELECT pg_notify($5::text, $6::text || '0' || string_agg(digest, ',')) AS sent
    FROM digests GROUP BY portion
)
SELECT moment.now, deleted.*, (SELECT count(sent::text) FROM notified) AS notices
FROM moment LEFT JOIN deleted ON true ORDER BY deleted.expires, deleted.key
