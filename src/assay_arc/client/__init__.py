"""Ways into a game for a player: a command and an MCP server; standard library only."""
