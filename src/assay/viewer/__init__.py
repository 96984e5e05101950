"""Looks at captures; never writes them."""
