-- Reads entries of several logs, each after a number and up to a limit.
-- The key of the task is one value for PostgreSQL, not a join: so the index of the entries has the order of the log,
-- and a page of a long log is read without sorting the rest of the log.
SELECT wanted.place, found.number, found.kind, found.at, found.format, found.data
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS wanted (id, after, max_entries, place)
CROSS JOIN LATERAL (
    SELECT entries.number, entries.kind, entries.at, entries.format, entries.data
    FROM entries
    WHERE entries.number > wanted.after AND entries.task = (
        SELECT key FROM tasks
        WHERE tasks.id = wanted.id AND (
            tasks.phase <> 'ended' OR tasks.expires IS NULL
            OR tasks.expires > coalesce($4::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        )
    )
    ORDER BY entries.number LIMIT wanted.max_entries
) AS found
ORDER BY wanted.place, found.number
