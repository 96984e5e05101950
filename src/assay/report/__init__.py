"""Stage: make words and pictures."""
