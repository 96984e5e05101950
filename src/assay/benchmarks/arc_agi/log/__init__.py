"""The event log of one game: the only truth about what was played."""
