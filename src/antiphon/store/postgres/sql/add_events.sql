-- Adds events whose topic has no event of the same id, or one that has expired. An event of another store has a number
-- and a time, which are NULL for others. An advisory lock for each topic is held
-- until the end of the transaction, so that the next event of the topic gets its number when all smaller numbers can be
-- read. Otherwise a reader could miss an event: it asks for the events after the last number that it has seen.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
locked AS MATERIALIZED (
    SELECT count(pg_advisory_xact_lock(topics.lock)::text) FROM (
        SELECT DISTINCT hashtextextended($8::text || ' ' || fresh.topic, 0) AS lock
        FROM unnest($3::text[]) AS fresh (topic) ORDER BY lock
    ) AS topics
)
INSERT INTO events AS kept (number, topic, id_key, id, at, until, format, data, long_topic)
SELECT
    next_event_number(fresh.topic, moment.now, fresh.number), fresh.topic, fresh.id_key, fresh.id,
    coalesce(fresh.at, moment.now), fresh.until, $2::smallint, fresh.data, fresh.long_topic
FROM locked, moment, unnest(
    $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $9::text[], $10::bigint[], $11::bigint[]
) WITH ORDINALITY AS fresh (topic, id_key, id, until, data, long_topic, number, at, place)
ORDER BY fresh.place
ON CONFLICT (topic, id_key) DO UPDATE SET
    number = excluded.number, at = excluded.at, until = excluded.until, format = excluded.format, data = excluded.data,
    long_topic = excluded.long_topic
WHERE kept.until <= (SELECT now FROM moment)
RETURNING kept.topic, kept.id_key
