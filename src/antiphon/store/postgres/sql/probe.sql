-- Writes a row and returns it. The row is the same for all probes, so that probes add nothing to the table.
INSERT INTO used AS recorded (key, until)
VALUES ($1::text, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ON CONFLICT (key) DO UPDATE SET until = excluded.until
RETURNING recorded.until
