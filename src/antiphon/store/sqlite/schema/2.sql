-- What processes say to each other. The last few hundred are there, for those who look a little later.
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    origin TEXT NOT NULL,
    topic TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
