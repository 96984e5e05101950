"""ARC-AGI-3 games as a benchmark: played in their own process, scored from its log."""
