"""Stage: start the agent, record everything it emits, end it for certain."""
