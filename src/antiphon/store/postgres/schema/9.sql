-- A task that waited for an answer, or had ended, and becomes ready goes behind the other queued tasks of its principal,
-- as a new task does (see sql/reached_turns.sql). A trigger, because the statement that writes all tasks is planned each
-- time, and because processes of the version before do not do it. The statement that wakes many tasks sets the turns
-- itself, so the trigger leaves a turn alone that changes.
CREATE FUNCTION set_turn() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    reached bigint;
    queued bigint;
BEGIN
    EXECUTE format('SELECT turn FROM %I.turns WHERE server = $1', TG_TABLE_SCHEMA) INTO reached USING NEW.server;
    reached := coalesce(reached, 0);
    EXECUTE format(
        'SELECT turn FROM %I.tasks WHERE CASE WHEN phase = ''ready'' AND lease = 0 AND turn IS NOT NULL THEN principal END '
        '= $1 AND server = $2 AND turn > $3 ORDER BY turn DESC LIMIT 1',
        TG_TABLE_SCHEMA
    ) INTO queued USING NEW.principal, NEW.server, reached;
    NEW.turn := greatest(NEW.updated, greatest(reached, queued) + 3600000);
    RETURN NEW;
END
$$;

CREATE TRIGGER tasks_set_turn BEFORE UPDATE ON tasks
FOR EACH ROW WHEN (
    NEW.phase = 'ready' AND OLD.phase <> 'ready' AND NEW.lease = 0 AND NEW.turn IS NOT DISTINCT FROM OLD.turn
) EXECUTE FUNCTION set_turn();

-- The topic of an event whose key in the column `topic` is a digest, so that the event can be moved to another store.
ALTER TABLE events ADD COLUMN long_topic text;

-- The number of a new event (see rules.next_event_number). A function, because its query sees the events that others have
-- added while the statement waited for the lock of the topic. It also sees those that the statement itself has added.
-- An event of another store keeps the number `wanted`, unless another event of the topic has it.
CREATE FUNCTION next_event_number(event_topic text, now bigint, wanted bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found bigint := wanted;
BEGIN
    IF wanted IS NULL THEN
        RETURN greatest(now * 1000, (SELECT max(number) + 1 FROM events WHERE topic = event_topic));
    END IF;
    WHILE EXISTS (SELECT FROM events WHERE topic = event_topic AND number = found) LOOP
        found := found + 1;
    END LOOP;
    RETURN found;
END
$$;
