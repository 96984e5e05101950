"""Adapters: each knows how to start one kind of agent and how to read its output."""
