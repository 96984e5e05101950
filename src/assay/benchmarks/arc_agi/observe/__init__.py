"""What a player sees of a game: compact text, and a picture if it asks for one."""
