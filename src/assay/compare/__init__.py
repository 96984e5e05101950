"""Stage: compare runs, paired by prompt."""
