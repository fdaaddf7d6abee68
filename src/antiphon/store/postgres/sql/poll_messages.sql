-- Gets the messages of other processes after a number. A message is settled once every message with a smaller
-- number must have been committed: 15 seconds is longer than a statement may take.
SELECT number, topic, CASE WHEN topic = ANY ($3::text[]) THEN data END AS data,
    at < clock_timestamp() - interval '15 seconds' AS settled
FROM messages WHERE number > $1::bigint AND origin <> $2::text ORDER BY number LIMIT 10000
