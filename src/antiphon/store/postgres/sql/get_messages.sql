-- Messages by their numbers; the data only of those on topics that somebody hears.
SELECT number, topic, CASE WHEN topic = ANY ($2::text[]) THEN data END AS data
FROM messages WHERE number = ANY ($1::bigint[]) ORDER BY number
