-- Lists of the tasks of one tool, phase or outcome. Each index slows writing down, so there are three, and one of them
-- replaces another: the list of all tasks merges the tasks of all tools, of which there are few.
DROP INDEX tasks_by_age;

CREATE INDEX tasks_of_tool ON task_rows (tool, created);

-- The tasks that wait for a worker or for an answer. A task that a worker holds from its creation to its end is never
-- in this index; `tasks_leased` has the tasks that workers hold.
CREATE INDEX tasks_unfinished ON task_rows (phase, created) WHERE phase <> 'ended' AND lease = 0;

-- The ended tasks by outcome, which is empty if the head does not say it. An expression and not a column, so that the
-- tasks of earlier versions have one too.
CREATE INDEX tasks_ended ON task_rows (
    CASE
        WHEN NOT json_valid(head) THEN ''
        WHEN json_extract(head, '$.state') = 'faulted' THEN 'failed'
        WHEN json_extract(head, '$.state') = 'cancelled' THEN 'cancelled'
        WHEN json_extract(head, '$.state') = 'done' THEN
            CASE WHEN json_type(head, '$.result.is_error') = 'true' THEN 'failed' ELSE 'done' END
        ELSE ''
    END,
    created
) WHERE phase = 'ended';
