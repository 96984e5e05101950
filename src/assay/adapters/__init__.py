"""Plugins that speak one agent's command line each."""
