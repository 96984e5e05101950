"""What an answer is compared with: given to the grader, or found in the row."""

from assay.errors import PluginError
from assay.seams import Trial


def expected_text(given: str | None, trial: Trial, against: str) -> str:
    """Give the text that was asked for: the option, else the row's hint, else its reference."""
    found = given
    if found is None and against in ("", "hint"):
        found = trial.hint
    if found is None and against in ("", "reference"):
        found = trial.reference
    if found is None:
        what = against or "hint or reference"
        msg = f"nothing to compare with: the row has no {what} and the grader was given no text"
        raise PluginError(msg)
    return found


def shown(text: str, n_chars: int = 80) -> str:
    """Cut a text for a sentence; line ends and quotes are made visible."""
    return repr(text if len(text) <= n_chars else f"{text[:n_chars]}…")
