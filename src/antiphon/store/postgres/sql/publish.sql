-- Publishes messages to all processes, and deletes a few messages after the number $5 that are over a minute old. A
-- notification names up to 300 messages, because PostgreSQL allows less than 8000 bytes.
WITH first AS MATERIALIZED (
    SELECT number, at FROM messages WHERE number > $5::bigint
    ORDER BY number LIMIT 10 + 4 * cardinality($1::text[])
),
old AS MATERIALIZED (
    SELECT messages.number FROM first JOIN messages ON messages.number = first.number
    WHERE first.at < clock_timestamp() - interval '1 minute'
    ORDER BY first.number FOR UPDATE OF messages SKIP LOCKED
),
deleted AS (
    DELETE FROM messages USING old WHERE messages.number = old.number
),
inserted AS (
    INSERT INTO messages (origin, at, topic, data)
    SELECT $4::text, clock_timestamp(), fresh.topic, fresh.data
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS fresh (topic, data, place) ORDER BY fresh.place
    RETURNING number
),
numbers AS (
    SELECT number, (row_number() OVER () - 1) / 300 AS portion FROM inserted
)
SELECT pg_notify($3::text, $4::text || 'm' || string_agg(number::text, ',')),
    (SELECT max(number) FROM old) AS last_deleted
FROM numbers GROUP BY portion
