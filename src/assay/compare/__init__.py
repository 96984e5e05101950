"""Stage: look at many trials: compare runs, pool baselines, check graders by people's labels."""
