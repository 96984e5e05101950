from assay.errors import AssayError as AssayError
from assay.library.ab import ExperimentVerdict as ExperimentVerdict
from assay.library.ab import ab as ab
from assay.library.async_run import AsyncRun as AsyncRun
from assay.library.async_run import arun as arun
from assay.library.grading import grade as grade
from assay.library.reading import Grade as Grade
from assay.library.reading import Trial as Trial
from assay.library.run import Run as Run
from assay.library.run import run as run
from assay.library.trials import Trials as Trials
from assay.library.trials import read as read
from assay.library.verdict import PairVerdict as PairVerdict
from assay.library.verdict import Verdict as Verdict
from assay.library.verdict import compare as compare
from assay.library.worker import AssayWarning as AssayWarning
from assay.library.worker import Progress as Progress

__version__: str
