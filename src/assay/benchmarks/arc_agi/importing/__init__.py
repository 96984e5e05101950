"""Takes over results of other harnesses: checked, replayed, scored anew, or not at all."""
