"""Scores of a game, computed from its plays; every score names its formula and its scale."""
