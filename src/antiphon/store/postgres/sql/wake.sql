-- Makes up to $2 waiting tasks ready, and appends an entry of the kind $4 and the data $5 to each. Wakes the tasks of the
-- servers $6, NULL for all, whose time came after $7, and the tasks that have one of the tags $8. A notification names up
-- to 400 tasks, because PostgreSQL allows less than 8000 bytes. One row comes back in any case, for the time.
--
-- The search by time skips tasks that others are changing: they have changed, or the next search finds them, because it
-- begins at the first time that was skipped or left over, which each row has. The last
-- search looked at the times up to $7, so the dead entries of woken tasks are left out. A task never begins to wait for
-- a time in the past (see write.sql), and 15 seconds is longer than a statement may take. The search by tags waits for
-- others, because no other search follows it. A task whose tags others change meanwhile may be woken in vain.
--
-- The entries have the format 0: their bytes count at once (see schema/11.sql).
--
-- A woken task goes behind the other queued tasks of its principal, as a new task does (see reached_turns.sql).
WITH RECURSIVE moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
named (server) AS (
    SELECT min(server) FROM tasks WHERE wakes IS NOT NULL AND $6::text[] IS NULL
    UNION ALL
    SELECT (SELECT min(server) FROM tasks WHERE wakes IS NOT NULL AND server > named.server)
    FROM named WHERE server IS NOT NULL
),
wanted (server) AS (
    SELECT server FROM named WHERE server IS NOT NULL UNION ALL SELECT unnest($6::text[])
),
due AS MATERIALIZED (
    SELECT found.key, found.wakes, found.server, found.principal, found.created FROM wanted CROSS JOIN LATERAL (
        SELECT key, wakes, server, principal, created FROM tasks
        WHERE server = wanted.server AND wakes IS NOT NULL AND wakes <= (SELECT now FROM moment)
            AND wakes > least($7::bigint, (SELECT now FROM moment) - 15000)
        ORDER BY wakes, key LIMIT $2::bigint FOR UPDATE SKIP LOCKED
    ) AS found
),
oldest_tagged AS MATERIALIZED (
    SELECT DISTINCT found.created, found.task FROM unnest($8::text[]) AS wanted_tags (tag) CROSS JOIN LATERAL (
        SELECT created, task FROM task_tags WHERE tag = wanted_tags.tag ORDER BY created, task LIMIT $2::bigint
    ) AS found
    ORDER BY found.created, found.task LIMIT $2::bigint
),
tagged AS MATERIALIZED (
    SELECT tasks.key, tasks.server, tasks.principal, tasks.created FROM oldest_tagged JOIN tasks ON tasks.key = oldest_tagged.task
    WHERE tasks.phase = 'waiting' ORDER BY tasks.key FOR UPDATE OF tasks
),
chosen AS MATERIALIZED (
    (SELECT key, wakes, server, principal, created FROM due ORDER BY wakes, key LIMIT $2::bigint)
    UNION ALL
    SELECT key, NULL, server, principal, created FROM tagged
),
skipped AS MATERIALIZED (
    SELECT min(found.wakes) AS wakes FROM wanted CROSS JOIN LATERAL (
        SELECT key, wakes FROM tasks
        WHERE server = wanted.server AND wakes IS NOT NULL AND wakes <= (SELECT now FROM moment)
            AND wakes > least($7::bigint, (SELECT now FROM moment) - 15000)
        ORDER BY wakes, key LIMIT $2::bigint + 1
    ) AS found
    WHERE NOT EXISTS (SELECT FROM chosen WHERE chosen.key = found.key)
),
queues AS MATERIALIZED (
    SELECT reached.server, reached.principal, greatest(reached.turn, (
        SELECT tasks.turn FROM tasks
        WHERE CASE WHEN phase = 'ready' AND lease = 0 AND tasks.turn IS NOT NULL THEN principal END = reached.principal
            AND tasks.server = reached.server AND tasks.turn > reached.turn
        ORDER BY tasks.turn DESC LIMIT 1
    )) AS turn
    FROM (
        SELECT server, principal, coalesce((SELECT turn FROM turns WHERE turns.server = own.server), 0) AS turn
        FROM (SELECT DISTINCT server, principal FROM chosen) AS own
    ) AS reached
),
placed AS MATERIALIZED (
    SELECT chosen.key, chosen.wakes, greatest(moment.now, queues.turn + 3600000) + 3600000 * (
        row_number() OVER (PARTITION BY server, principal ORDER BY chosen.wakes, chosen.created, chosen.key) - 1
    ) AS turn
    FROM moment, chosen JOIN queues USING (server, principal)
),
woken AS (
    UPDATE tasks SET
        version = tasks.version + 1, was = tasks.phase, phase = 'ready', updated = moment.now, wakes = NULL, tags = NULL,
        turn = placed.turn, bytes = tasks.bytes + 128 + octet_length($4::text) + octet_length($5::text)
    FROM moment, placed WHERE tasks.key = placed.key
    RETURNING tasks.key, tasks.id, tasks.version, tasks.created, placed.wakes
),
inserted_entries AS (
    INSERT INTO entries (task, number, kind, at, format, data)
    SELECT woken.key, woken.version, $4::text, moment.now, $3::smallint - 1, $5::text FROM moment, woken
),
counted AS (
    INSERT INTO counts AS current (slot, phase, tasks)
    SELECT $9::integer, changes.phase, sum(changes.change) FROM woken
    CROSS JOIN (VALUES ('ready', 1), ('waiting', -1)) AS changes (phase, change)
    GROUP BY changes.phase
    ON CONFLICT (slot, phase) DO UPDATE SET tasks = current.tasks + excluded.tasks
),
digests AS (
    SELECT
        left(encode(sha256(convert_to(id, 'UTF8')), 'hex'), 16) AS digest,
        (row_number() OVER () - 1) / 400 AS portion
    FROM woken
),
notified AS (
    SELECT pg_notify($10::text, $11::text || '1' || string_agg(digest, ',')) AS sent FROM digests GROUP BY portion
)
SELECT moment.now, woken.id, woken.wakes, (SELECT wakes FROM skipped) AS skipped,
    (SELECT count(sent::text) FROM notified) AS notices
FROM moment LEFT JOIN woken ON true ORDER BY woken.wakes, woken.created, woken.key
