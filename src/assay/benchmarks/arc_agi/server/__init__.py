"""The game process: one game for one trial, behind a private socket."""
