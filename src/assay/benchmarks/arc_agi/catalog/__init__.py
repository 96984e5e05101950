"""Finds games: those of the package and those in a user's environment_files."""
