"""Property tests here are short but the machine may be busy: no deadline for one example."""

from hypothesis import settings

settings.register_profile("assay-stats", deadline=None)
settings.load_profile("assay-stats")
