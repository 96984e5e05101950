"""Built-in players: programs that play over the same socket as any agent."""
