-- Counts the tasks of some servers in a phase.
SELECT coalesce(sum(tasks), 0)::bigint FROM tallies
WHERE hour = -1 AND server = ANY ($2::text[]) AND CASE WHEN status IN ('ready', 'waiting') THEN status ELSE 'ended' END = $1::text
