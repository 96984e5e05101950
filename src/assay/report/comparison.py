"""A comparison as Markdown, for a terminal and as JSON."""

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

from assay.records.capture import cause_words
from assay.records.text import counted_noun, visible_line
from assay.report.markdown import escape, table_line
from assay.report.sentence import Numbers
from assay.report.text import money, number

_SHOWN_FLIPS = 10
_SHOWN_FLAKY = 5
_LONGEST_REASON = 300
_SMALLEST_P = 0.0001
_DIGITS = {"latencyMs": 0, "costUsd": 5, "tokens": 1}
_AMOUNTS = {"latencyMs": "time, ms", "costUsd": "cost, $", "tokens": "tokens"}
type Table = tuple[str, list[str], list[list[str]]]
"""Title, header, rows."""


def markdown(sections: dict[str, Any], *, fractions: bool = False) -> str:
    """Return the report as Markdown, the verdict on top."""
    lines = ["# Comparison", ""]
    for line in proof_lines(sections):
        lines += [escape(line), ""]
    for _, words in headlines(sections):
        lines += [f"**{escape(words)}**", ""]
    for line in gate_lines(sections):
        lines += [f"**{escape(line)}**", ""]
    lines += ["## Health", "", *(f"- {escape(line)}" for line in health_lines(sections))]
    lines += [f"- note: {escape(note)}" for note in sections["notes"]]
    for title, header, rows in tables(sections, fractions=fractions):
        lines += ["", f"## {escape(title)}", "", table_line(*map(escape, header))]
        lines.append(table_line(*("---" for _ in header)))
        lines += [table_line(*map(escape, row)) for row in rows]
    if flips := flip_lines(sections):
        lines += ["", "## Flipped prompts", "", *(f"- {escape(line)}" for line in flips)]
    lines += ["", "## What would make it surer", ""]
    lines += [f"- {escape(line)}" for line in advice_lines(sections)]
    meta = sections["meta"]
    units = f", {meta['clusters']} clusters of prompts" if "clusters" in meta else ""
    margin = Numbers(fractions).margin(meta["margin"])
    lines += ["", f"Margin {margin}, 95 % intervals{units}, seed {meta['seed']}."]
    lines += [meta["intervals"], ""]
    return "\n".join(lines)


def proof_lines(sections: dict[str, Any]) -> list[str]:
    """Return how the arms of an experiment differ; of other runs nothing is known."""
    return [visible_line(line) for line in sections.get("proof", {}).get("words", ())]


def headlines(sections: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a judge of the user's own decided, and then the verdicts, each with its code."""
    for judged in sections.get("judge", {}).get("verdict", ()):
        yield "judge", visible_line(judged["words"])
    yield from verdict_lines(sections)


def verdict_lines(sections: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield code and words of each verdict; an unhealthy measurement has a code of its own."""
    for verdict in sections["verdict"]:
        yield verdict["code"] if verdict["healthy"] else "unhealthy", verdict["words"]


def gate_lines(sections: dict[str, Any]) -> Iterator[str]:
    """Yield the outcome of the gate for each run that was judged."""
    for judged in sections.get("gate", ()):
        pair = f"{judged['runB']} against {judged['runA']}"
        outcome = outcome_words(judged["outcome"])
        words = f"Gate {judged['gate']}, {pair}: {outcome} ({judged['words']})"
        if used := judged.get("sequential"):
            words = f"{words}; {used['words']}"
        yield visible_line(words)


def outcome_words(outcome: str) -> str:
    """The outcome of a gate as people say it; JSON keeps the name."""
    return {"cannot-judge": "cannot be judged", "go-on": "go on"}.get(outcome, outcome)


def health_lines(sections: dict[str, Any]) -> list[str]:
    """Return for each run how far it can be believed."""
    lines = []
    for label, health in sections["health"].items():
        parts = [f"{health['run']} of {health['planned']} trials run, {health['graded']} graded"]
        parts += [
            f"{n} not measured ({cause_words(cause)})" for cause, n in health["notMeasured"].items()
        ]
        if health.get("excused"):
            parts.append(f"{health['excused']} tried again by the agent's word alone")
        if "passRateAtWorst" in health and health["graded"]:
            worst = f"{health['passRateAtWorst']:.0%}"
            parts.append(f"pass rate {worst} if excuses of the agent count as failures")
        parts += [f"{cause_words(cause)} in {n}" for cause, n in health["agentFailures"].items()]
        if health["permissionDenials"]:
            parts.append(f"{health['permissionDenials']} permission denials")
        if baseline := health.get("baseline"):
            builds = counted_noun(baseline["nBuilds"], "build")
            parts.append(f"pooled from {builds}; {baseline['words']}")
        if not health["healthy"]:
            parts.append(f"UNHEALTHY: {'; '.join(health['problems'])}")
        lines.append(visible_line(f"{label}: {', '.join(parts)}"))
    return lines


def advice_lines(sections: dict[str, Any]) -> list[str]:
    """Return for each pair, or for a run alone, whether more prompts or more trials would help."""
    pairs = [(f"{pair['runB']} - {pair['runA']}", pair["advice"]) for pair in sections["pairs"]]
    alone = [(label, variance["words"]) for label, variance in sections["variance"].items()]
    return [visible_line(f"{name}: {words}") for name, words in pairs or alone]


def flip_lines(sections: dict[str, Any]) -> list[str]:
    """Name the prompts that went down or up from one run to the other."""
    lines = []
    for pair in sections["pairs"]:
        for name in ("regressed", "improved"):
            ids = pair[name]
            if ids:
                more = f" and {len(ids) - _SHOWN_FLIPS} more" if len(ids) > _SHOWN_FLIPS else ""
                chances = pair[f"{name}Chance"]
                shown = [f"{i} ({_chance(p)})" for i, p in zip(ids, chances, strict=True)]
                shown_ids = ", ".join(shown[:_SHOWN_FLIPS])
                lines.append(visible_line(f"{pair['runB']} {name} on {shown_ids}{more}"))
    if lines:
        lines.append("In brackets: the chance of such a change, or a larger one, by luck alone.")
    return lines


def tables(sections: dict[str, Any], *, fractions: bool = False) -> Iterator[Table]:
    """Yield title, header and rows of each table of the report."""
    for title, header, rows in _tables(sections, Numbers(fractions)):
        shown = [[visible_line(cell) for cell in row] for row in rows]
        yield visible_line(title), [visible_line(cell) for cell in header], shown


def _tables(sections: dict[str, Any], numbers: Numbers) -> Iterator[Table]:
    yield _runs_table(sections, numbers)
    yield _completion_table(sections, numbers)
    if sections["pairs"]:
        yield _head_to_head_table(sections)
    if sections.get("judge", {}).get("reasons"):
        yield _reasons_table(sections)
    yield _pairs_table(sections, numbers)
    yield _amounts_table(sections)
    if "capability" in sections:
        yield _pass_k_table(sections, numbers)
        yield _flakiness_table(sections)
    if "measures" in sections:
        yield _measures_table(sections)
    if any(len(by_name) > 1 for by_name in sections["categories"].values()):
        yield _categories_table(sections, numbers)
        yield from _category_differences(sections)
    if "ranking" in sections:
        yield _ranking_table(sections)


def _runs_table(sections: dict[str, Any], numbers: Numbers) -> Table:
    trials = "capability" in sections
    rows = []
    for label in sections["meta"]["runs"]:
        quality = (sections.get("quality") or {}).get(label) or {}
        performance = sections["performance"][label]
        limits = quality.get("confidenceIntervals", {})
        row = [label, _rate(numbers, quality.get("passRate"), limits.get("passRate"))]
        if trials:
            row += _largest_k(numbers, sections["capability"][label]["perK"])
        row.append(_rate(Numbers(True), quality.get("avgScore"), limits.get("avgScore")))
        row.append(money((performance.get("costUsd") or {}).get("total")))
        rows.append(row)
    of_k = ["k", "pass@k", "pass^k"] if trials else []
    return "Runs", ["run", "pass rate", *of_k, "score", "cost"], rows


def _completion_table(sections: dict[str, Any], numbers: Numbers) -> Table:
    rows = []
    for label in sections["meta"]["runs"]:
        performance = sections["performance"][label]
        ended = sections.get("completion", sections["reliability"])[label]
        latency = performance["latency"] or {}
        ends = performance["confidenceIntervals"].get("latencyMean")
        row = [label, _rate(numbers, ended["completionRate"], None)]
        row += [str(ended["toolErrors"]), str(ended["timeouts"])]
        row += [number(latency.get(name), 0) for name in ("p50", "p90", "p99")]
        rows.append([*row, _with_limits(latency.get("mean"), ends, digits=0)])
    header = ["run", "completed", "tool errors", "timeouts", "p50 ms", "p90 ms", "p99 ms"]
    return "Completion and latency", [*header, "mean ms"], rows


def _head_to_head_table(sections: dict[str, Any]) -> Table:
    found = sections["headToHead"]
    names = [name for name in ("capability", "reliability", "overall") if name in found]
    rows = []
    for name in names or ["pairwise"]:
        for pair in found[name]:
            won = [str(pair[field]) for field in ("aWins", "bWins", "ties", "notMeasured")]
            rows.append([pair["runA"], pair["runB"], *([name] if names else []), *won])
    header = ["run A", "run B", *(["by"] if names else []), "A wins", "B wins", "ties"]
    words = sections["meta"]["strategyWords"]
    return f"Head to head, {words}", [*header, "not measured"], rows


def _reasons_table(sections: dict[str, Any]) -> Table:
    judge = sections["judge"]
    rows = [
        [reason["id"], reason["winner"] or "none", _shortened(reason["reasoning"] or "-")]
        for reason in judge["reasons"]
    ]
    n_all = judge["asked"]
    some = f", {len(rows)} of {n_all} prompts (all are in the JSON)" if len(rows) < n_all else ""
    return f"What {judge['grader']} said{some}", ["prompt", "winner", "reasoning"], rows


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}…"


def _flakiness_table(sections: dict[str, Any]) -> Table:
    rows = []
    for label in sections["meta"]["runs"]:
        flaky = sections["flakiness"][label]
        worst = [f"{one['id']} ({one['flakiness']:.3f})" for one in flaky["topFlakyPrompts"]]
        left = flaky["flakyPromptCount"] - _SHOWN_FLAKY
        more = f" and {left} more" if left > 0 else ""
        shown = ", ".join(worst[:_SHOWN_FLAKY]) + more if worst else "none"
        average = _with_limits(flaky["avgFlakiness"], None)
        rows.append([label, average, str(flaky["flakyPromptCount"]), shown])
    header = ["run", "mean flakiness", "flaky prompts", "flakiest"]
    return "Flakiness, pass@k - pass^k of the seed formula", header, rows


def _largest_k(numbers: Numbers, per_k: list[dict[str, Any]]) -> list[str]:
    if not per_k:
        return ["-", "not measured", "not measured"]
    return [str(per_k[-1]["k"]), *_both_of_k(numbers, per_k[-1])]


def _both_of_k(numbers: Numbers, found: dict[str, Any]) -> list[str]:
    names = ("passAtK", "passExpK")
    return [_rate(numbers, found[name], _ends(found[f"{name}Interval"])) for name in names]


def _pairs_table(sections: dict[str, Any], numbers: Numbers) -> Table:
    rows = []
    for pair in sections["pairs"]:
        bounds = pair["bounds"]
        left_open = "-"
        if bounds:
            left_open = " to ".join(_points(numbers, bounds[end], None) for end in ("low", "high"))
        rate = _difference(pair["passRate"], pair["adjustedP"], numbers)
        score = _difference(pair["score"], pair["adjustedPScore"], Numbers(fractions=True))
        name = f"{pair['runB']} - {pair['runA']}"
        what = "pass rate" if numbers.fractions else "pass rate, points"
        rows.append([name, what, *rate, left_open, _verdict_word(pair["verdict"]["code"])])
        rows.append([name, "score", *score, "-", "-"])
    # p-values are adjusted for the number of pairs, intervals are not.
    difference = "difference, each alone" if len(sections["pairs"]) > 1 else "difference"
    header = ["pair", "what", difference, "p (Holm)", "win/tie/loss", "effect", "detectable"]
    return "Pairs", [*header, "open bounds", "verdict"], rows


def _verdict_word(verdict_code: str) -> str:
    return verdict_code.replace("-", " ")


def _difference(
    difference: dict[str, Any], adjusted_p: float | None, numbers: Numbers
) -> list[str]:
    return [
        _points(numbers, difference["difference"], _ends(difference["interval"])),
        _chance(adjusted_p),
        f"{difference['wins']}/{difference['ties']}/{difference['losses']}",
        number(difference["effects"][0]["value"] if difference["effects"] else None, 2),
        _detectable(numbers, difference["smallestDetectable"]),
    ]


def _detectable(numbers: Numbers, smallest: float | None) -> str:
    return "-" if smallest is None else _points(numbers, smallest, None).removeprefix("+")


def _amounts_table(sections: dict[str, Any]) -> Table:
    rows = []
    for pair in sections["pairs"]:
        for name, amount in pair["amounts"].items():
            rows.append(
                [
                    f"{pair['runB']} - {pair['runA']}",
                    _AMOUNTS[name],
                    _with_limits(
                        amount["difference"],
                        _ends(amount["differenceInterval"]),
                        sign=True,
                        digits=_DIGITS[name],
                    ),
                    _with_limits(amount["ratio"], _ends(amount["ratioInterval"])),
                    _with_limits(amount["medianRatio"], _ends(amount["medianRatioInterval"])),
                ]
            )
    header = ["pair", "what", "difference per prompt", "ratio", "median ratio"]
    return "Cost and time", header, rows


def _pass_k_table(sections: dict[str, Any], numbers: Numbers) -> Table:
    rows = []
    for label in sections["meta"]["runs"]:
        for estimate in sections["capability"][label]["perK"]:
            rows.append(
                [
                    label,
                    str(estimate["k"]),
                    *_both_of_k(numbers, estimate),
                    str(estimate["nPrompts"]),
                    _both_bounds(numbers, estimate),
                ]
            )
        at_k = sections["capability"][label]["avgPassAtK"]
        exp_k = sections["reliability"][label]["avgPassExpK"]
        seed = [_rate(numbers, at_k, None), _rate(numbers, exp_k, None)]
        rows.append([label, "seed formula", *seed, "-", "-"])
    header = ["run", "k", "pass@k", "pass^k", "prompts", "open bounds"]
    return "Unbiased pass@k and pass^k", header, rows


def _both_bounds(numbers: Numbers, estimate: dict[str, Any]) -> str:
    """Return what trials that were not measured leave open."""
    bounds = estimate["passAtKBounds"], estimate["passExpKBounds"]
    return "; ".join(" to ".join(numbers.rates(*ends)) for ends in filter(None, bounds)) or "-"


def _measures_table(sections: dict[str, Any]) -> Table:
    names, rows = measured(sections)
    return "Measures, mean of a trial", ["run", *names], rows


def measured(sections: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """What the grader measured besides the score: the names, and a row for each run."""
    by_run = sections["measures"]
    names = list(dict.fromkeys(name for measures in by_run.values() for name in measures))
    labels = sections["meta"]["runs"]
    return names, [[run, *(number(by_run[run].get(name), 2) for name in names)] for run in labels]


def _categories_table(sections: dict[str, Any], numbers: Numbers) -> Table:
    labels = sections["meta"]["runs"]
    names = sorted({name for by_name in sections["categories"].values() for name in by_name})
    rows = []
    for name in names:
        row = [name]
        for label in labels:
            category = sections["categories"][label].get(name)
            row.append(
                _rate(numbers, category["passRate"], category["interval"]) if category else "-"
            )
        rows.append(row)
    return "Pass rate by category", ["category", *labels], rows


def _category_differences(sections: dict[str, Any]) -> Iterator[Table]:
    """Yield for each pair the differences by category, which few prompts alone would overstate."""
    for pair in sections["pairs"]:
        rows = [
            [
                one["name"],
                str(one["nPrompts"]),
                _with_limits(one["difference"], None, sign=True),
                _with_limits(one["shrunken"], _ends(one["interval"]), sign=True),
            ]
            for one in pair.get("categories", ())
        ]
        if rows:
            title = f"{pair['runB']} - {pair['runA']} by category"
            yield title, ["category", "prompts", "as seen", "shrunken (hierarchical)"], rows


def _ranking_table(sections: dict[str, Any]) -> Table:
    rows = [
        [
            str(ranked["rank"]),
            ranked["run"],
            _with_limits(ranked["strength"], _ends(ranked["interval"]), sign=True),
            number(ranked["winChance"], 2),
        ]
        for ranked in sections["ranking"]
    ]
    return "Ranking (Bradley-Terry)", ["rank", "run", "strength", "wins against average"], rows


def _ends(interval: dict[str, Any] | None) -> list[float] | None:
    return [interval["low"], interval["high"]] if interval else None


def _rate(numbers: Numbers, value: float | None, limits: list[float] | None) -> str:
    """Write a rate and its limits, as in: 99.7 % (99.5 to 99.8)."""
    if value is None:
        return "not measured"
    text, *ends = numbers.rates(value, *(limits or ()), fewest=1)
    return f"{text} ({' to '.join(end.removesuffix(' %') for end in ends)})" if ends else text


def _points(numbers: Numbers, value: float | None, limits: list[float] | None) -> str:
    """Write a difference and its limits: in points +45.0 (+23.6 to +59.5)."""
    if numbers.fractions:
        return _with_limits(value, limits, sign=True)
    times = None if value is None else 100 * value
    return _with_limits(times, limits and [100 * end for end in limits], sign=True, digits=1)


def _with_limits(
    value: float | None, limits: list[float] | None, *, sign: bool = False, digits: int = 3
) -> str:
    if value is None:
        return "not measured"
    form = f"{'+' if sign else ''}.{digits}f"
    text = format(value, form)
    if limits:
        text += f" ({format(limits[0], form)} to {format(limits[1], form)})"
    return text


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return "-"
    return f"{p_value:.4f}" if p_value >= _SMALLEST_P else f"<{_SMALLEST_P}"


def write_json(
    out: BinaryIO, sections: dict[str, Any], rows: Iterable[list[bytes]], key: tuple[str, ...]
) -> None:
    """Write two-space JSON; rows go to key, which names a section or a field of one.

    By hand, because the rows come as encoded bytes, some at a time, and may be a million.
    """
    out.write(b"{")
    first = True
    for name, value in sections.items():
        out.write(b"\n  " if first else b",\n  ")
        first = False
        out.write(msgspec.json.encode(name) + b": ")
        if key[0] == name:
            _write_with_rows(out, value, rows, key[1])
        else:
            out.write(_indented(value))
    if key[0] not in sections:
        out.write(b",\n  " + msgspec.json.encode(key[0]) + b": ")
        _write_rows(out, rows, b"    ", b"  ")
    out.write(b"\n}\n")


def _write_with_rows(
    out: BinaryIO, section: dict[str, Any], rows: Iterable[list[bytes]], field: str
) -> None:
    out.write(b"{\n    " + msgspec.json.encode(field) + b": ")
    _write_rows(out, rows, b"      ", b"    ")
    for name, value in section.items():
        text = _indented(value).replace(b"\n", b"\n  ")
        out.write(b",\n    " + msgspec.json.encode(name) + b": " + text)
    out.write(b"\n  }")


def _write_rows(out: BinaryIO, rows: Iterable[list[bytes]], indent: bytes, closing: bytes) -> None:
    out.write(b"[")
    comma, written = b",\n" + indent, False
    for some in rows:
        out.write((comma if written else b"\n" + indent) + comma.join(some))
        written = True
    out.write(b"\n" + closing + b"]" if written else b"]")


def _indented(value: Any) -> bytes:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    return text.replace(b"\n", b"\n  ")
