-- Counts the claimable tasks of the tool $1 of the servers $3, NULL for all, up to $2.
SELECT count(*) FROM (
    SELECT 1 FROM tasks
    WHERE phase = 'ready' AND lease = 0 AND tool = $1::text AND ($3::text[] IS NULL OR server = ANY ($3::text[]))
    LIMIT $2::bigint
) AS found
