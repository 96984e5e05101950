"""Words about runs: a report on one, a comparison of several; no printing here."""
