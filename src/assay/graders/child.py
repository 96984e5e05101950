"""The child process of guard.py: one trial per line in, one answer per line out.

Started with the grader's reference as its argument. What a grader prints goes to stderr, so that it
cannot be taken for an answer.
"""

import os
import sys

import msgspec

from assay import plugins
from assay.errors import AssayError
from assay.graders.guard import Answer, PythonCode
from assay.plugin import Trial
from assay.records.spec import PluginRef


def main() -> None:
    """Answer until stdin ends."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    grader = plugins.grader(msgspec.json.decode(sys.argv[1], type=PluginRef))
    assert isinstance(grader, PythonCode)
    decoder = msgspec.json.Decoder(Trial)
    for line in questions:
        answers.write(msgspec.json.encode(_answer(grader, decoder.decode(line))) + b"\n")
        answers.flush()


def _answer(grader: PythonCode, trial: Trial) -> Answer:
    try:
        return Answer(grade=grader.judge(trial))
    except AssayError as error:
        return Answer(error=error.message)
    except Exception as error:  # noqa: BLE001 - a user's grader may raise anything
        return Answer(error=f"{type(error).__name__}: {error}".encode(errors="replace").decode())


if __name__ == "__main__":
    main()
