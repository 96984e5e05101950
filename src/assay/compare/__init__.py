"""Stage: set runs side by side."""
