-- Lists events of all topics that have not expired, after the topic $2 and the number $3, in order.
SELECT coalesce(long_topic, topic) AS topic, until, number, id, at, format, data FROM events
WHERE (topic, number) > ($2::text, $3::bigint)
    AND until > coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ORDER BY events.topic, number LIMIT $4::bigint
