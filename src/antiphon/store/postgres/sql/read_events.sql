-- Reads the events of the topic $2 that are numbered above $3 and have not expired, in order.
SELECT number, id, at, format, data FROM events
WHERE topic = $2::text AND number > $3::bigint
    AND until > coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ORDER BY number LIMIT $4::bigint
