"""Bundles of evidence: pack, redact, sign, verify, publish."""
