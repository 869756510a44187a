"""Objects at revisions: in memory, in SQLite, and watched from a revision onward."""
