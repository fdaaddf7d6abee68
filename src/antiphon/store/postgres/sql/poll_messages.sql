-- Messages of others after a number, and whether all before them must have been committed by now.
SELECT number, topic, CASE WHEN topic = ANY ($3::text[]) THEN data END AS data,
    at < clock_timestamp() - interval '15 seconds' AS settled
FROM messages WHERE number > $1::bigint AND origin <> $2::text ORDER BY number LIMIT 10000
