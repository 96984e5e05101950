"""The real ARC engine: the only modules that import arc_agi, and only when a game is opened."""
