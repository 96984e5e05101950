"""Plugins that bring prompts, their world and their graders."""
