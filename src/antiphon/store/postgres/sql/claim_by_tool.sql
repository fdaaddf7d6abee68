-- Claims the claimable tasks with the smallest turns, of some tools of some servers, and skips the ones that other processes are claiming. A task with
-- an expired lease is claimable, and keeps its place in the order. Up to 1000 more of them than claimed are considered.
--
-- The search leaves out the dead entries of the indexes (see schema/3.sql). It looks at the tasks that became
-- claimable since the transaction $6, and for each tool in $5 of the server in $11 at the tasks from the turn
-- and key in $9 and $10 on, none for NULL. If more than $8 tasks became claimable, nothing is claimed and `is_partial` is true. The last
-- claim looked at the leases that ended before $7.
--
-- One row has the limits of the next search, and each other row a claimed task. Expressions such as `lease + 0` keep
-- PostgreSQL from reading an index of claimable tasks where keys are at hand. The CASE is the key of the index
-- `tasks_arrived` (see schema/5.sql).
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
searched AS MATERIALIZED (
    SELECT server, tool, turn, key
    FROM unnest($5::text[], $11::text[], $9::bigint[], $10::bigint[]) AS wanted (tool, server, turn, key)
    WHERE turn IS NOT NULL AND NOT (SELECT is_partial FROM search)
),
claimable_arrived AS MATERIALIZED (
    SELECT tasks.key, arrived.turn FROM arrived JOIN tasks ON tasks.key = arrived.key
    WHERE arrived.tool = ANY ($5::text[]) AND arrived.server = ANY ($11::text[]) AND tasks.phase || '' = 'ready' AND tasks.lease + 0 = 0
        AND NOT (SELECT is_partial FROM search)
    ORDER BY arrived.turn, arrived.key LIMIT $4::bigint FOR UPDATE OF tasks SKIP LOCKED
),
claimable AS MATERIALIZED (
    SELECT found.key, found.turn FROM searched CROSS JOIN LATERAL (
        SELECT key, coalesce(turn, created) AS turn FROM tasks
        WHERE server = searched.server AND tool = searched.tool AND phase = 'ready' AND lease = 0
            AND (coalesce(tasks.turn, tasks.created), key) >= (searched.turn, searched.key)
        ORDER BY coalesce(tasks.turn, tasks.created), key LIMIT $4::bigint FOR UPDATE SKIP LOCKED
    ) AS found
),
lease_expired AS MATERIALIZED (
    SELECT key, coalesce(turn, created) AS turn, lease FROM tasks
    WHERE lease > least($7::bigint, (SELECT now FROM moment) - 2000) AND lease > 0
        AND lease <= (SELECT now FROM moment) AND tool = ANY ($5::text[]) AND server = ANY ($11::text[])
        AND NOT (SELECT is_partial FROM search)
    ORDER BY lease LIMIT 1000 + $4::bigint FOR UPDATE SKIP LOCKED
),
chosen AS MATERIALIZED (
    SELECT key FROM (
        SELECT key, turn FROM claimable_arrived
        UNION SELECT key, turn FROM claimable
        UNION SELECT key, turn FROM lease_expired
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
    WHERE tool = ANY ($5::text[]) AND server = ANY ($11::text[]) AND key NOT IN (SELECT key FROM chosen)
),
next_search AS (
    SELECT searched.server, searched.tool, found.turn, found.key FROM searched CROSS JOIN LATERAL (
        SELECT coalesce(turn, created) AS turn, key FROM tasks
        WHERE server = searched.server AND tool = searched.tool AND phase = 'ready' AND lease = 0
            AND (coalesce(tasks.turn, tasks.created), key) >= (searched.turn, searched.key)
            AND key <> ALL (ARRAY(SELECT key FROM chosen))
        ORDER BY coalesce(tasks.turn, tasks.created), key LIMIT 1
    ) AS found
),
limits AS (
    SELECT
        search.is_partial,
        moment.now,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS settled,
        (SELECT array_agg(ROW (server, tool, turn, key)) FROM remaining) AS remaining,
        (SELECT min(freed) FROM remaining) AS first_freed,
        (SELECT min(lease) FROM lease_expired WHERE key NOT IN (SELECT key FROM chosen)) AS first_ended,
        (SELECT array_agg(ROW (server, tool, turn, key)) FROM next_search) AS next_search
    FROM search, moment
)
SELECT limits.*, claimed.* FROM limits FULL JOIN claimed ON false
