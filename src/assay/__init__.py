"""Assay evaluates any command-line agent. Importing it does nothing; see docs/architecture.md."""

__version__ = "0.1.0"
