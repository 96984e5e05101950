"""Stage: read a recording into a trajectory."""
