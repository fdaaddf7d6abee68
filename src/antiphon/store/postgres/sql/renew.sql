-- Extends the leases of claims whose token is valid. A worker that has to stop has an empty name.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
UPDATE tasks SET lease = moment.now + held.length
FROM moment, unnest($2::text[], $3::bigint[], $4::bigint[]) AS held (id, token, length)
WHERE tasks.id = held.id AND tasks.worker IS NOT NULL AND tasks.token = held.token
RETURNING tasks.id, tasks.worker = '' AS is_stopping
