-- Gives up claims whose token is valid, and notifies the workers if a task became claimable. A task that is
-- released with a delay is claimable when the delay ends, like a task whose lease ends.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
released AS (
    UPDATE tasks SET worker = NULL, lease = CASE WHEN held.delay = 0 THEN 0 ELSE moment.now + held.delay END
    FROM moment, unnest($2::text[], $3::bigint[], $4::bigint[]) AS held (id, token, delay)
    WHERE tasks.id = held.id AND tasks.worker IS NOT NULL AND tasks.token = held.token
    RETURNING tasks.phase = 'ready' AND tasks.lease = 0 AS free
),
notified AS (
    SELECT pg_notify($5::text, $6::text || '1') AS sent FROM (SELECT FROM released WHERE free LIMIT 1) AS one
)
SELECT coalesce(bool_or(free), false) AS free, (SELECT count(sent::text) FROM notified) AS notices FROM released
