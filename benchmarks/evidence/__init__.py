"""Bundles of evidence: what they take, and what happens to forged ones."""
