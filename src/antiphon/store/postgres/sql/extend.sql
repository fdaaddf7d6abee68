-- Brings the task $3 up to date with the one in the store from which it was restored, unless it has gone on here: then it
-- has more than $12 entries, another token than $13, or a worker. Returns no row in that case. $1 is the time, NULL for the
-- clock of this database.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
extended AS (
    UPDATE tasks SET
        was = tasks.phase, phase = $4::text, version = $5::bigint, updated = $6::bigint, expires = $7::bigint,
        token = $8::bigint, format = $2::smallint, head = $9::text,
        wakes = CASE WHEN $10::bigint IS NOT NULL THEN greatest($10::bigint, moment.now) END, tags = $11::text
    FROM moment
    WHERE tasks.id = $3::text AND tasks.version = $12::bigint AND tasks.token = $13::bigint AND tasks.worker IS NULL
        AND tasks.lease = 0
    RETURNING tasks.key, tasks.id, tasks.phase, tasks.was
),
inserted_entries AS (
    INSERT INTO entries (task, number, kind, at, format, data)
    SELECT extended.key, $12::bigint + e.place, e.kind, e.at, $2::smallint, e.data
    FROM extended, unnest($14::text[], $15::bigint[], $16::text[]) WITH ORDINALITY AS e (kind, at, data, place)
),
counted AS (
    INSERT INTO counts AS current (slot, phase, tasks)
    SELECT $17::integer, changes.phase, sum(changes.change) FROM (
        SELECT phase, 1 AS change FROM extended UNION ALL SELECT was, -1 FROM extended
    ) AS changes GROUP BY changes.phase HAVING sum(changes.change) <> 0
    ON CONFLICT (slot, phase) DO UPDATE SET tasks = current.tasks + excluded.tasks
),
notified AS (
    SELECT pg_notify(
        $18::text, $19::text || (phase = 'ready')::int || left(encode(sha256(convert_to(id, 'UTF8')), 'hex'), 16)
    ) AS sent
    FROM extended
)
SELECT extended.phase = 'ready' AS free, (SELECT count(sent::text) FROM notified) AS notices FROM extended
