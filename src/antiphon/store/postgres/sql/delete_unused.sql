-- Deletes the rows of sharers that have no tasks any more.
DELETE FROM usages WHERE bytes = 0 AND slot = 0
