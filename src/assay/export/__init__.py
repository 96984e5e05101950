"""Stage: make files for other programs, and let SQL read results."""
