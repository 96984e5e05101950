"""Files for other harnesses: programs and texts that are copied out, filled in, and run there."""
