"""Plugins that decide where trials run."""
