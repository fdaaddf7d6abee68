-- The messages between processes. Those of the last seconds are kept, for processes that poll a little later.
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    origin TEXT NOT NULL,
    topic TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
