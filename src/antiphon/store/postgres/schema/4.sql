-- The server of each task: servers of different names share a store without running each other's tasks. Tasks of
-- earlier versions have the name '', and every server runs them.
ALTER TABLE tasks ADD COLUMN server text COLLATE "C" NOT NULL DEFAULT '';

-- The claimable tasks of each server, oldest first, so that another server's backlog does not slow a claim down.
-- An index with the server replaces the one without: each index slows writing down, and earlier versions find the
-- same tasks without it, only slower.
DROP INDEX tasks_free_of_tool;

CREATE INDEX tasks_free_of_server ON tasks (server, tool, created, key) WHERE phase = 'ready' AND lease = 0;

DROP INDEX tasks_of_principal;

CREATE INDEX tasks_of_principal_on_server ON tasks (principal, server, created, key);

DROP INDEX tasks_overdue;

CREATE INDEX tasks_overdue_of_server ON tasks (server, expires, key) WHERE phase <> 'ended' AND expires IS NOT NULL;
