"""Runs on disk in the seed's layout: .arc-agi-benchmarks/ with runs, imports and comparisons."""
