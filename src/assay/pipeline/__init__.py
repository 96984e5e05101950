"""The order of the stages: prompts, trials, extraction, grading."""
