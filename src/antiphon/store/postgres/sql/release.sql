-- Gives up claims whose token is valid, and notifies the workers if a task became claimable.
WITH released AS (
    UPDATE tasks SET worker = NULL, lease = 0
    FROM unnest($1::text[], $2::bigint[]) AS held (id, token)
    WHERE tasks.id = held.id AND tasks.worker IS NOT NULL AND tasks.token = held.token
    RETURNING tasks.phase = 'ready' AS free
),
notified AS (
    SELECT pg_notify($3::text, $4::text || '1') AS sent FROM (SELECT FROM released WHERE free LIMIT 1) AS one
)
SELECT coalesce(bool_or(free), false) AS free, (SELECT count(sent::text) FROM notified) AS notices FROM released
