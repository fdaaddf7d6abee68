-- Deletes up to $2 events that expired after $3, earliest first, and returns the time and the last expiry.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
old AS MATERIALIZED (
    SELECT topic, number, until FROM events WHERE until > $3::bigint AND until <= (SELECT now FROM moment)
    ORDER BY until LIMIT $2::bigint FOR UPDATE SKIP LOCKED
),
deleted AS (
    DELETE FROM events USING old WHERE events.topic = old.topic AND events.number = old.number
)
SELECT moment.now, (SELECT max(until) FROM old) AS last_deleted FROM moment
