-- Lists the records of one principal after a position: on the servers of $6, or if that is NULL on all
-- servers on which the principal has tasks, found with one lookup in the index for each.
-- $1 and $2 are the position, $3 is the limit, and $4 the time, NULL for the clock of this database. The others leave
-- tasks out: $5 principal, $6 servers, $7 tool, $8 phase, $9 outcome, each NULL for all, and $10 the last creation time.
WITH RECURSIVE named (server) AS (
    SELECT min(server) FROM tasks WHERE principal = $5::text AND $6::text[] IS NULL
    UNION ALL
    SELECT (SELECT min(server) FROM tasks WHERE principal = $5::text AND server > named.server)
    FROM named WHERE server IS NOT NULL
),
wanted (server) AS (
    SELECT server FROM named WHERE server IS NOT NULL UNION ALL SELECT unnest($6::text[])
)
SELECT found.* FROM wanted CROSS JOIN LATERAL (
    SELECT key, id, principal, tool, phase, version, created, updated, expires, format, head, server, wakes, tags, sharer
    FROM tasks WHERE principal = $5::text AND server = wanted.server
        AND (created, key) < ($1::bigint, $2::bigint) AND created >= $10::bigint
        AND ($7::text IS NULL OR tool = $7::text) AND ($8::text IS NULL OR phase = $8::text)
        AND ($9::text IS NULL OR (phase = 'ended' AND coalesce(outcome, outcome_of(head)) = $9::text))
        AND (
            phase <> 'ended' OR expires IS NULL
            OR expires > coalesce($4::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        )
    ORDER BY created DESC, key DESC LIMIT $3::bigint
) AS found ORDER BY found.created DESC, found.key DESC LIMIT $3::bigint
