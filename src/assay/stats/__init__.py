"""Pure statistics on arrays: no input or output, no clock, randomness only from a given seed."""
