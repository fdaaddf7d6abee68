-- Gets the bytes of the logs of a sharer, or of all for an empty name, on the servers $2, NULL for all.
SELECT coalesce(sum(bytes), 0)::bigint FROM usages
WHERE sharer = $1::text AND ($2::text[] IS NULL OR server = ANY ($2::text[]))
