"""The processes that verify a bundle: they run where nothing can be written and nobody reached.

Their argument is a folder with the bundle and the keys; what they find they write there. One runs
the graders of the bundle and does nothing else, so that their code cannot touch what others find.
"""

import os
import sys
from pathlib import Path

import msgspec

from assay.errors import AssayError
from assay.evidence.regrade import graded_again
from assay.evidence.verify import GRADED, Level, Report, Verification, guarded
from assay.records.bundle import Bundle, Damaged

BUNDLE, KEYS, REPORT, REFUSED = "bundle.zip", "keys", "report.json", "refused.json"
GRADE, REST = "grade", "rest"
"""What a process does."""


class Refused(msgspec.Struct, frozen=True):
    """Why a bundle was not verified at all."""

    message: str
    hint: str = ""


def main(folder: Path, what: str) -> None:
    """Verify, and write down what was found."""
    os.environ.pop("PYTHONPATH", None)  # it is for this process, not for a grader's interpreter
    try:
        found = _found(folder, is_grading=what == GRADE)
    except AssayError as error:
        words = error.message.replace(f"{folder / BUNDLE}: ", "")
        (folder / REFUSED).write_bytes(msgspec.json.encode(Refused(words, error.hint or "")))
        return
    (folder / REPORT).write_bytes(msgspec.json.encode(found))


def _found(folder: Path, *, is_grading: bool) -> Report:
    keys = [path.read_bytes() for path in sorted((folder / KEYS).iterdir())]
    work = folder / "work"
    work.mkdir()
    try:
        with Bundle(folder / BUNDLE) as bundle:
            verification = Verification(bundle, work, keys)
            if is_grading:
                return Report(levels=[guarded(GRADED, lambda: graded_again(verification))])
            return verification.report()
    except Damaged as error:
        words = error.message.removeprefix(f"{folder / BUNDLE}: ")
        whole = f"{words} ({error.hint})" if error.hint else words
        return Report(levels=[Level.of("intact", "it cannot be read", [whole])])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
