-- Creates tasks and appends to logs, a whole batch in one statement and so in one commit.
-- A refused operation changes nothing and returns no row; task_rows.sql then finds the reason.
-- All tasks are different. An append with `unwind_by` leaves a task that was ever claimed ready, and asks its worker to
-- stop: an empty name says so. A task never begins to wait for a time in the past (see wake.sql). $1 is the time, NULL for the clock of this database. A notification names up to 400
-- tasks, because PostgreSQL allows less than 8000 bytes. The entries have the format 0: the bytes of their task include them
-- already (see schema/11.sql).
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
created AS (
    INSERT INTO tasks (
        id, principal, tool, phase, version, created, updated, expires, token, worker, lease, format, head, server,
        wakes, tags, turn, sharer, bytes
    )
    SELECT
        c.id, c.principal, c.tool, c.phase, c.version, c.created, c.updated, c.expires,
        CASE WHEN c.worker IS NULL THEN 0 ELSE 1 END, c.worker,
        CASE WHEN c.worker IS NULL THEN 0 ELSE moment.now + c.lease END, $2::smallint, c.head, c.server,
        CASE WHEN c.wakes IS NOT NULL THEN greatest(c.wakes, moment.now) END, c.tags, c.turn,
        c.sharer, c.bytes
    FROM moment, unnest(
        $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
        $10::bigint[], $11::text[], $12::bigint[], $13::text[], $14::text[], $31::bigint[], $32::text[], $35::bigint[],
        $37::text[], $38::bigint[]
    ) WITH ORDINALITY AS c (
        id, principal, tool, phase, version, created, updated, expires, worker, lease, head, server, wakes, tags, turn,
        sharer, bytes, place
    )
    ORDER BY c.place
    ON CONFLICT (id) DO NOTHING
    RETURNING key, id, version, token, phase, lease
),
appended AS (
    UPDATE tasks SET
        version = tasks.version + a.added,
        was = tasks.phase,
        phase = CASE WHEN a.unwind_by IS NOT NULL AND tasks.token > 0 THEN 'ready' ELSE a.phase END,
        updated = moment.now,
        expires = CASE WHEN CASE WHEN a.sets_expires THEN a.expires ELSE tasks.expires END IS NOT NULL THEN greatest(
            CASE WHEN a.sets_expires THEN a.expires ELSE tasks.expires END,
            CASE WHEN tasks.token > 0 THEN a.unwind_by END
        ) END,
        worker = CASE
            WHEN a.unwind_by IS NOT NULL AND tasks.worker IS NOT NULL THEN ''
            WHEN a.phase = 'ready' THEN tasks.worker
        END,
        lease = CASE
            WHEN a.phase = 'ready' OR (a.unwind_by IS NOT NULL AND tasks.token > 0) THEN tasks.lease ELSE 0
        END,
        format = $2::smallint,
        head = a.head,
        wakes = CASE WHEN a.wakes IS NOT NULL THEN greatest(a.wakes, moment.now) END,
        tags = a.tags,
        bytes = tasks.bytes + a.bytes
    FROM moment, unnest(
        $15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::text[], $20::bigint[], $21::boolean[],
        $22::bigint[], $23::bigint[], $33::bigint[], $34::text[], $36::bigint[], $39::bigint[]
    ) AS a (id, expect, added, phase, head, token, sets_expires, expires, unwind_by, wakes, tags, before, bytes)
    WHERE tasks.id = a.id
        AND (tasks.phase <> 'ended' OR tasks.expires IS NULL OR tasks.expires > moment.now)
        AND (a.token IS NULL OR (tasks.worker IS NOT NULL AND tasks.token = a.token))
        AND tasks.version = a.expect
        AND (a.before IS NULL OR moment.now < a.before)
    RETURNING tasks.key, tasks.id, tasks.version, tasks.token, tasks.phase, tasks.lease, tasks.was
),
changed AS (
    SELECT key, id, version, token, phase, lease FROM created
    UNION ALL
    SELECT key, id, version, token, phase, lease FROM appended
),
inserted_entries AS (
    INSERT INTO entries (task, number, kind, at, format, data)
    SELECT changed.key, e.number, e.kind, moment.now, 0, e.data
    FROM moment, unnest($24::text[], $25::bigint[], $26::text[], $27::text[]) AS e (id, number, kind, data)
    JOIN changed ON changed.id = e.id
),
counted AS (
    INSERT INTO counts AS current (slot, phase, tasks)
    SELECT $28::integer, phase, sum(change) FROM (
        SELECT phase, 1 AS change FROM changed UNION ALL SELECT was, -1 FROM appended
    ) AS changes GROUP BY phase HAVING sum(change) <> 0
    ON CONFLICT (slot, phase) DO UPDATE SET tasks = current.tasks + excluded.tasks
),
digests AS (
    SELECT
        left(encode(sha256(convert_to(id, 'UTF8')), 'hex'), 16) AS digest,
        phase = 'ready' AND lease = 0 AS free,
        (row_number() OVER () - 1) / 400 AS portion
    FROM changed
),
notified AS (
    SELECT pg_notify($29::text, $30::text || bool_or(free)::int || string_agg(digest, ',')) AS sent
    FROM digests GROUP BY portion
)
SELECT changed.id, changed.version, changed.token, changed.phase = 'ready' AND changed.lease = 0 AS free,
    (SELECT count(sent::text) FROM notified) AS notices, (SELECT now FROM moment) AS now
FROM changed
