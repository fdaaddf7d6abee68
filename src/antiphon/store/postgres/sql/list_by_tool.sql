-- Lists the records of one tool after a position; if $7 is NULL, of all tools that have tasks, found with
-- one lookup in the index for each.
-- $1 and $2 are the position, $3 is the limit, and $4 the time, NULL for the clock of this database. The others leave
-- tasks out: $5 principal, $6 servers, $7 tool, $8 phase, $9 outcome, each NULL for all, and $10 the last creation time.
WITH RECURSIVE named (tool) AS (
    SELECT min(tool || '') FROM tasks WHERE $7::text IS NULL
    UNION ALL
    SELECT (SELECT min(tool || '') FROM tasks WHERE tool || '' > named.tool) FROM named WHERE tool IS NOT NULL
),
wanted (tool) AS (
    SELECT tool FROM named WHERE tool IS NOT NULL UNION ALL SELECT $7::text WHERE $7::text IS NOT NULL
)
SELECT found.* FROM wanted CROSS JOIN LATERAL (
    SELECT key, id, principal, tool, phase, version, created, updated, expires, format, head, server, wakes, tags, sharer
    FROM tasks WHERE tool || '' = wanted.tool
        AND (created, key) < ($1::bigint, $2::bigint) AND created >= $10::bigint
        AND ($6::text[] IS NULL OR server = ANY ($6::text[])) AND ($5::text IS NULL OR principal = $5::text)
        AND ($8::text IS NULL OR phase = $8::text)
        AND ($9::text IS NULL OR (phase = 'ended' AND coalesce(outcome, outcome_of(head)) = $9::text))
        AND (
            phase <> 'ended' OR expires IS NULL
            OR expires > coalesce($4::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        )
    ORDER BY created DESC, key DESC LIMIT $3::bigint
) AS found ORDER BY found.created DESC, found.key DESC LIMIT $3::bigint
