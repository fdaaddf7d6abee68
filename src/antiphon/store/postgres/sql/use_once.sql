-- Records keys that are not recorded or have expired, and deletes a few expired keys for each.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
expired AS MATERIALIZED (
    SELECT key FROM used WHERE until <= (SELECT now FROM moment) AND key <> ALL ($2::text[])
    ORDER BY until LIMIT 4 * cardinality($2::text[]) FOR UPDATE SKIP LOCKED
),
deleted AS (
    DELETE FROM used USING expired WHERE used.key = expired.key
)
INSERT INTO used AS recorded (key, until)
SELECT fresh.key, fresh.until FROM unnest($2::text[], $3::bigint[]) AS fresh (key, until)
ON CONFLICT (key) DO UPDATE SET until = excluded.until WHERE recorded.until <= (SELECT now FROM moment)
RETURNING recorded.key
