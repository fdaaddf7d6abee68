-- Records the largest turns that were claimed, by server.
INSERT INTO turns AS recorded (server, turn)
SELECT server, turn FROM unnest($1::text[], $2::bigint[]) AS reached (server, turn) ORDER BY server
ON CONFLICT (server) DO UPDATE SET turn = excluded.turn WHERE recorded.turn < excluded.turn
