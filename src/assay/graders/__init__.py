"""Plugins that judge one trial each."""
