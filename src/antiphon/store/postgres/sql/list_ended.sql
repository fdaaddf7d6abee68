-- Lists the records of ended tasks after a position: with the outcome $9, or if that is NULL with any.
-- The index has the tasks that are done under the empty text, with those whose head says no outcome.
-- $1 and $2 are the position, $3 is the limit, and $4 the time, NULL for the clock of this database. The others leave
-- tasks out: $5 principal, $6 servers, $7 tool, $8 phase, $9 outcome, each NULL for all, and $10 the last creation time.
WITH wanted (outcome) AS (
    SELECT unnest(CASE
        WHEN $9::text IS NULL THEN ARRAY['', 'failed', 'cancelled']
        ELSE ARRAY[coalesce(nullif($9::text, 'done'), '')]
    END)
)
SELECT found.* FROM wanted CROSS JOIN LATERAL (
    SELECT key, id, principal, tool, phase, version, created, updated, expires, format, head, server, wakes, tags, sharer
    FROM tasks WHERE phase = 'ended' AND coalesce(tasks.outcome, '') = wanted.outcome
        AND (created, key) < ($1::bigint, $2::bigint) AND created >= $10::bigint
        AND ($6::text[] IS NULL OR server = ANY ($6::text[])) AND ($5::text IS NULL OR principal = $5::text)
        AND ($7::text IS NULL OR tool = $7::text) AND ($8::text IS NULL OR phase = $8::text)
        AND ($9::text IS NULL OR coalesce(tasks.outcome, outcome_of(head)) = $9::text)
        AND (
            phase <> 'ended' OR expires IS NULL
            OR expires > coalesce($4::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        )
    ORDER BY created DESC, key DESC LIMIT $3::bigint
) AS found ORDER BY found.created DESC, found.key DESC LIMIT $3::bigint
