"""Tasks, as a client sees them: requests about them, their status, their questions and their result."""
