"""A leaderboard of bundles: each is verified, and only what can be compared shares a table."""

import datetime
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from assay import __version__
from assay.compare.report import CompareOptions
from assay.errors import AssayError
from assay.evidence.check import verify_bundle
from assay.evidence.unpack import unpack_runs
from assay.evidence.verify import Report
from assay.records.files import is_bundle, replaced_file, temporary_folder
from assay.report.text import money
from assay.viewer.bundle import write_bundle
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview


class Checked(NamedTuple):
    """A bundle of the folder, and what came of verifying it."""

    path: Path
    report: Report | None
    words: str
    rank: int
    """0 holds, 1 could not be checked, 2 differs."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def check_board(folder: Path, keys: Sequence[Path] = ()) -> list[Checked]:
    """Verify every bundle of a folder."""
    paths = sorted(path for path in folder.rglob("*.zip") if path.is_file())
    return [_checked(path, keys) for path in paths]


def _checked(path: Path, keys: Sequence[Path]) -> Checked:
    if not is_bundle(path):
        return Checked(path, None, "refused: no bundle of evidence", 2)
    try:
        report = verify_bundle(path, keys)
    except AssayError as error:
        return Checked(path, None, f"refused: {error.message}", 2)
    lines = [f"{one.name}: {line}" for one in report.levels for line in one.differences]
    if lines:
        return Checked(path, report, f"differs: {lines[0]}", 2)
    lines = [f"{one.name}: {line}" for one in report.levels for line in one.unchecked]
    if lines:
        return Checked(path, report, f"not checked: {lines[0]}", 1)
    return Checked(path, report, "holds", 0)


def write_board(found: Sequence[Checked], output: Path) -> None:
    """Write the page, and beside it one page with the trials of each bundle."""
    folder = output.with_name(f"{output.stem}.trials")
    shown = [one for one in found if one.rank < 2 and one.report is not None]
    for one in shown:
        folder.mkdir(parents=True, exist_ok=True)
        _write_trials(one.path, folder / f"{one.digest[:16]}.html")
    page = _page(found, shown, output)
    with replaced_file(output) as file:
        file.write(page.encode())


def _write_trials(bundle: Path, page: Path) -> None:
    """Write the trials of a bundle by our own writer: its own report may be anything."""
    with temporary_folder("assay-board-") as place:
        runs = unpack_runs(bundle, Path(place), raw=False)
        opened = [OpenRun(label, Index(path, "category", keep=False)) for label, path in runs]
        try:
            for run in opened:
                run.index.refresh()
            epoch = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
            options = CompareOptions(now=epoch)
            with replaced_file(page) as out:
                write_bundle(out, overview(bundle.stem, opened, options), opened)
        finally:
            for run in opened:
                run.index.close()


def _page(found: Sequence[Checked], shown: Sequence[Checked], output: Path) -> str:
    tables: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for one in shown:
        assert one.report is not None
        about = one.report.about
        key = (str(about.get("promptsDigest")), str(about.get("gradersDigest")))
        tables.setdefault(key, []).extend(_rows(one, found, output))
    parts = []
    for (prompts, graders), rows in sorted(tables.items()):
        parts.append(f"<h2>Prompts {_short(prompts)}, graders {_short(graders)}</h2>")
        lines = "".join(row for _, row in sorted(rows, key=lambda row: -row[0]))
        parts.append(f"<table>{_HEAD}{lines}</table>")
    left = [one for one in found if one.rank == 2]
    if left:
        listed = "".join(f"<li>{escape(one.path.name)}: {escape(one.words)}</li>" for one in left)
        parts.append(f"<h2>Not shown</h2><ul>{listed}</ul>")
    if not found:
        parts.append("<p>There are no bundles.</p>")
    return _PAGE.format(body="\n".join(parts), version=escape(__version__))


def _rows(one: Checked, found: Sequence[Checked], output: Path) -> Iterator[tuple[float, str]]:
    assert one.report is not None
    trials = f"{output.stem}.trials/{one.digest[:16]}.html"
    for label, run in one.report.about.get("runs", {}).items():
        rate, ends = run.get("rate"), run.get("interval") or {}
        agents = run.get("agents") or ["unknown"]
        cells = (
            ", ".join(agents),
            f"{one.path.stem}: {label}",
            "-" if rate is None else f"{rate:.1%}",
            f"{ends['low']:.1%} to {ends['high']:.1%}" if ends else "-",
            f"{run.get('passed')} of {run.get('measured')}",
            money(run.get("costUsd")),
            _assurance(one, found),
        )
        shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        link = f'<td><a href="{escape(quote(trials))}">trials</a></td>'
        yield (-1.0 if rate is None else float(rate)), f"<tr>{shown}{link}</tr>\n"


def _assurance(one: Checked, found: Sequence[Checked]) -> str:
    """Say who vouches for a result, and what of it was checked here."""
    assert one.report is not None
    signed = next((level for level in one.report.levels if level.name == "signed"), None)
    words = "self-attested"
    if _is_reproduced(one, found):
        words = "reproduced"
    words += ", signed " + signed.words if signed and signed.state == "holds" else ", not signed"
    if one.report.withheld:
        words += "; parts withheld"
    return words if one.rank == 0 else f"{words}; {one.words}"


def _is_reproduced(one: Checked, found: Sequence[Checked]) -> bool:
    """Whether another bundle here, signed by another key, has the same measurement again."""
    return any(
        other.path != one.path and (_names(other, one) or _names(one, other)) for other in found
    )


def _names(one: Checked, other: Checked) -> bool:
    if one.report is None or other.report is None or max(one.rank, other.rank) == 2:
        return False
    about, earlier = one.report.about, other.report.about
    if about.get("reproduces") != other.digest or about.get("assurance") != "reproduced":
        return False
    alike = all(about.get(key) == earlier.get(key) for key in ("promptsDigest", "gradersDigest"))
    keys = [about.get("key"), earlier.get("key")]
    return alike and None not in keys and keys[0] != keys[1] and _agree(about, earlier)


def _agree(about: dict[str, Any], earlier: dict[str, Any]) -> bool:
    """Whether the intervals of all runs overlap."""
    for run, again in zip(about["runs"].values(), earlier["runs"].values(), strict=False):
        one, other = run.get("interval"), again.get("interval")
        if not one or not other or one["low"] > other["high"] or other["low"] > one["high"]:
            return False
    return len(about["runs"]) == len(earlier["runs"])


def _short(digest: str) -> str:
    return f"<code>{escape(digest[:12])}</code>"


_HEAD = (
    "<tr><th>Agent and model</th><th>Run</th><th>Pass rate</th><th>95 % interval</th>"
    "<th>Passed</th><th>Cost</th><th>Assurance</th><th></th></tr>\n"
)
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Leaderboard</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ border-bottom: 1px solid #ccc; padding: .3rem .6rem; text-align: left }}
</style>
<h1>Leaderboard</h1>
{body}
<p>Every bundle was verified by assay {version}. Results on different prompts or graders are in
different tables, because they cannot be compared.</p>
</html>
"""
