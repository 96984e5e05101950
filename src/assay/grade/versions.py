"""Say by which version of the graders a verdict was given."""

from collections.abc import Mapping

from assay.records.grade import Grade


def grader_version(score: Grade | None, grades: Mapping[str, Grade]) -> str | None:
    """Give the version; of several graders all of them, by name. None is unknown."""
    if score is not None and score.version:
        return score.version
    known = [f"{name}:{grade.version}" for name, grade in sorted(grades.items()) if grade.version]
    return "+".join(known) or None
