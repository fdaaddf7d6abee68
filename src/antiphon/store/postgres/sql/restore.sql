-- Creates tasks with the logs that they had in another store, a whole batch in one commit. A task whose id is in use
-- is left out and returns no row. A task never begins to wait for a time in the past (see wake.sql). $1 is the time,
-- NULL for the clock of this database. A notification names up to 400 tasks, because PostgreSQL allows less than 8000
-- bytes.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
created AS (
    INSERT INTO tasks (
        id, principal, tool, phase, version, created, updated, expires, token, lease, format, head, server, wakes, tags,
        turn, sharer
    )
    SELECT
        c.id, c.principal, c.tool, c.phase, c.version, c.created, c.updated, c.expires, c.token, 0, $2::smallint,
        c.head, c.server, CASE WHEN c.wakes IS NOT NULL THEN greatest(c.wakes, moment.now) END, c.tags, c.turn, c.sharer
    FROM moment, unnest(
        $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[],
        $11::bigint[], $12::text[], $13::text[], $14::bigint[], $15::text[], $24::bigint[], $25::text[]
    ) WITH ORDINALITY AS c (
        id, principal, tool, phase, version, created, updated, expires, token, head, server, wakes, tags, turn, sharer, place
    )
    ORDER BY c.place
    ON CONFLICT (id) DO NOTHING
    RETURNING key, id, phase
),
inserted_entries AS (
    INSERT INTO entries (task, number, kind, at, format, data)
    SELECT created.key, e.number, e.kind, e.at, $2::smallint, e.data
    FROM unnest($16::text[], $17::bigint[], $18::text[], $19::bigint[], $20::text[]) AS e (id, number, kind, at, data)
    JOIN created ON created.id = e.id
),
counted AS (
    INSERT INTO counts AS current (slot, phase, tasks)
    SELECT $21::integer, phase, count(*) FROM created GROUP BY phase
    ON CONFLICT (slot, phase) DO UPDATE SET tasks = current.tasks + excluded.tasks
),
digests AS (
    SELECT
        left(encode(sha256(convert_to(id, 'UTF8')), 'hex'), 16) AS digest,
        phase = 'ready' AS free,
        (row_number() OVER () - 1) / 400 AS portion
    FROM created
),
notified AS (
    SELECT pg_notify($22::text, $23::text || bool_or(free)::int || string_agg(digest, ',')) AS sent
    FROM digests GROUP BY portion
)
SELECT created.id, created.phase = 'ready' AS free, (SELECT count(sent::text) FROM notified) AS notices FROM created
