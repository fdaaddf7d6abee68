-- Notes keys, unless they are noted and not yet over; forgets a few that are over for each.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
over AS MATERIALIZED (
    SELECT key FROM used WHERE until <= (SELECT now FROM moment) AND key <> ALL ($2::text[])
    ORDER BY until LIMIT 4 * cardinality($2::text[]) FOR UPDATE SKIP LOCKED
),
swept AS (
    DELETE FROM used USING over WHERE used.key = over.key
)
INSERT INTO used AS noted (key, until)
SELECT fresh.key, fresh.until FROM unnest($2::text[], $3::bigint[]) AS fresh (key, until)
ON CONFLICT (key) DO UPDATE SET until = excluded.until WHERE noted.until <= (SELECT now FROM moment)
RETURNING noted.key
