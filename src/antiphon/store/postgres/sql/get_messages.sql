-- Gets messages by number, and their data if their topic has a subscriber.
SELECT number, topic, CASE WHEN topic = ANY ($2::text[]) THEN data END AS data
FROM messages WHERE number = ANY ($1::bigint[]) ORDER BY number
