"""Stage: ask the graders."""
