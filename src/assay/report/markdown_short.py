"""Runs in a few lines of Markdown: for a pull request or $GITHUB_STEP_SUMMARY."""

from collections.abc import Iterator
from typing import Any

from assay.report.comparison_text import health_lines

_SIGNS = {"better": "✅", "worse": "❌", "same": "🟰"}
_MOST_IDS = 10
_MOST_ID = 80


def short_markdown(overview: dict[str, Any], heading: str | None = None) -> str:
    """Give verdict, health, one table of runs, and the prompts that changed."""
    lines = [f"### {_text(heading or 'Evaluation')}", ""]
    for group in overview["groups"]:
        lines += _group(group["sections"])
    return "\n".join([*lines, ""])


def _group(sections: dict[str, Any]) -> Iterator[str]:
    for verdict in sections["verdict"]:
        sign = _SIGNS.get(verdict.get("code", ""), "❔") if verdict["healthy"] else "⚠️"
        yield f"{sign} **{_text(verdict.get('words', 'not judged'))}**"
        yield ""
    yield "| run | pass rate | score | median time | cost |"
    yield "|---|---|---|---|---|"
    for label in sections["meta"]["runs"]:
        yield _short_row(sections, label)
    yield ""
    yield from (f"- {_text(line)}" for line in health_lines(sections))
    yield from (f"- note: {_text(note)}" for note in sections["notes"])
    for pair in sections["pairs"]:
        yield from _flips(pair)
    yield ""


def _short_row(sections: dict[str, Any], label: str) -> str:
    quality = (sections.get("quality") or {}).get(label) or {}
    limits = quality.get("confidenceIntervals", {})
    rate, ends = quality.get("passRate"), limits.get("passRate")
    per_k = sections.get("capability", {}).get(label, {}).get("perK", [])
    if per_k:
        first, interval = per_k[0], per_k[0]["passAtKInterval"]
        rate, ends = first["passAtK"], interval and [interval["low"], interval["high"]]
    performance = sections["performance"][label]
    latency, cost = performance["latency"] or {}, performance.get("costUsd")
    cells = [
        _text(label),
        _percent(rate, ends),
        _score(quality.get("avgScore"), limits.get("avgScore")),
        f"{latency['p50'] / 1000:.1f} s" if latency else "–",
        f"${cost['total']:.4f}" if cost else "–",
    ]
    return f"| {' | '.join(cells)} |"


def _flips(pair: dict[str, Any]) -> Iterator[str]:
    for word, ids in (("worse", pair["regressed"]), ("better", pair["improved"])):
        if ids:
            more = f" and {len(ids) - _MOST_IDS} more" if len(ids) > _MOST_IDS else ""
            shown = ", ".join(_text(one[:_MOST_ID]) for one in ids[:_MOST_IDS])
            yield f"- {_text(pair['runB'])} {word} on {len(ids)} prompts: {shown}{more}"


def _percent(rate: float | None, ends: list[float] | None) -> str:
    if rate is None:
        return "not measured"
    return f"{rate:.1%}" + (f" ({ends[0]:.0%} to {ends[1]:.0%})" if ends else "")


def _score(value: float | None, ends: list[float] | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else "")


def _text(text: str) -> str:
    """Keep names from being read as Markdown, HTML or a mention of somebody."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text)
    for sign in "\\`*_[]<>|~#":
        plain = plain.replace(sign, f"\\{sign}")
    return plain.replace("@", "@\u200b").replace("&", "&amp;")
