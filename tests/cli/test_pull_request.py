"""assay report -f markdown: what a reviewer reads, and what never gets into it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

HOSTILE = (
    "</code></details>`` @octocat [x](https://evil.example) https://evil.example/a "
    "www.evil.example #12 GH-7 0123456789abcdef <img src=x onerror=alert(1)> | "
    "`` ` \x1b[31m\u202e\nnext"
)


def capture(prompt_id: str, *, passed: bool | None, reason: str = "because", **more: Any) -> Any:
    row = {
        "id": prompt_id,
        "input": "q",
        "output": "a",
        "trajectory": [],
        "metadata": {"category": f"c{len(prompt_id) % 3}"},
        "timing": {"start": 0, "end": 1500, "total": 1500},
        "toolErrors": False,
    }
    if passed is not None:
        row["score"] = {"pass": passed, "score": float(passed), "reasoning": reason}
    return row | more


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, list[Any]], Path]:
    def write(name: str, rows: list[Any]) -> Path:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_the_worst_prompts_come_with_the_reasons_of_both_graders(
    assay: Callable[..., Any], write: Callable[..., Path]
) -> None:
    good = [capture(f"p{n}", passed=True, reason="it matches") for n in range(30)]
    bad = [capture(f"p{n}", passed=n >= 7, reason=f"got {n}") for n in range(30)]
    bad[0] = capture("p0", passed=False, failure={"cause": "agent_timeout", "message": "60 s"})
    done = assay("report", f"main:{write('a', good)}", f"new:{write('b', bad)}", "-f", "markdown")
    assert done.code == 0, done.stderr
    assert "**new did worse on 7 prompts, the worst 5:**" in done.stdout
    assert "- `p0` 100 % → 0 %; new: `ran out of time: 60 s`; main: `it matches`" in done.stdout
    assert "- `p1` 100 % → 0 %; new: `got 1`; main: `it matches`" in done.stdout
    assert done.stdout.count("100 % → 0 %") == 5
    assert "agent_timeout" not in done.stdout


def test_prompts_that_got_worse_by_chance_alone_are_told_apart(
    assay: Callable[..., Any], write: Callable[..., Path]
) -> None:
    def row(n: int, passed: int) -> Any:
        trials = [
            {"trialNum": i + 1, "output": "", "trajectory": [], "duration": 1}
            | {"pass": i < passed, "score": float(i < passed)}
            for i in range(5)
        ]
        return {"id": f"p{n}", "input": f"q{n}", "k": 5, "metadata": {}, "trials": trials}

    main = write("a", [row(n, 5) for n in range(12)])
    for after, words in (
        ([0, 0, 4, 4, 3, 4], "did worse on 6 prompts (beyond chance on 2), the worst 5:"),
        ([4, 4], "did worse on 2 prompts (beyond chance on none):"),
        ([0, 0], "did worse on 2 prompts:"),
    ):
        rates = after + [5] * (12 - len(after))
        now = write("b", [row(n, passed) for n, passed in enumerate(rates)])
        done = assay("report", f"main:{main}", f"new:{now}", "-f", "markdown")
        assert f"**new {words}**" in done.stdout


def test_the_difference_and_its_interval_stand_there_even_if_nothing_is_decided(
    assay: Callable[..., Any], write: Callable[..., Path]
) -> None:
    one = write("a", [capture(f"p{n}", passed=n != 1) for n in range(8)])
    two = write("b", [capture(f"p{n}", passed=n != 2) for n in range(8)])
    line = assay("report", one, two, "-f", "markdown").stdout.splitlines()[2]
    assert line.startswith("❔ **It is not decided whether b is better than a: 88 % → 88 % of")
    assert re.search(
        r"\(0 points, 95 % interval -\d+ to \+\d+\)\.\*\* 8 prompts leave it open", line
    )


def test_links_lead_to_both_trials_side_by_side(
    assay: Callable[..., Any], write: Callable[..., Path]
) -> None:
    def trials(*passes: bool) -> Any:
        entries = [
            {"trialNum": n, "output": "", "trajectory": [], "duration": 5, "pass": passed,
             "score": float(passed), "reasoning": f"try {n}"}
            for n, passed in enumerate(passes, 1)
        ]  # fmt: skip
        return {"id": "a b/c", "input": "q", "k": len(passes), "trials": entries, "metadata": {}}

    main, new = write("m", [trials(False, True)]), write("n", [trials(False, False)])
    words = ("report", f"main:{main}", f"new:{new}", "-f", "markdown")
    done = assay(*words, "--link", "https://host.example/r/1/report.html")
    to = "https://host.example/r/1/report.html#/beside/a%20b%2Fc/main/2/new/1"
    assert f"- [`a b/c`]({to}) 50 % → 0 %; new: `try 1`; main: `try 2`" in done.stdout
    assert "](" not in assay(*words).stdout


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://x.example/) [a](b", "report.html", "https://a b", ""]
)
def test_a_link_must_be_an_address(
    assay: Callable[..., Any], write: Callable[..., Path], url: str
) -> None:
    done = assay("report", write("a", [capture("p", passed=True)]), "-f", "markdown", "--link", url)
    assert done.code == 2
    assert "--link" in done.stderr


def test_what_agents_and_graders_say_cannot_leave_its_code(
    assay: Callable[..., Any], write: Callable[..., Path]
) -> None:
    label = "b @octocat https://evil.example #12"
    good = [capture(HOSTILE, passed=True, reason=HOSTILE, metadata={"category": HOSTILE})]
    bad = [
        capture(
            HOSTILE,
            passed=False,
            metadata={"category": HOSTILE},
            failure={"cause": HOSTILE, "message": HOSTILE},
        )
    ]
    more = [capture(f"p{n}", passed=True) for n in range(6)]
    files = [f"main:{write('a', good + more)}", "--run", f"{label}:{write('b', bad + more)}"]
    text = assay("report", *files, "-f", "markdown", "--title", HOSTILE).stdout
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) <= 40
    _assert_harmless(text)


def _assert_harmless(text: str) -> None:
    """Render it as GitHub does, and look at what is not code: that is what it would link."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert not [one for one in inline if one.type in ("link_open", "image", "html_inline")]
    html = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert all(re.fullmatch(r"<details><summary>[^<]*</summary>|</details>", one) for one in html)
    words = " ".join(one.content for one in inline if one.type == "text")
    linked = r"@\w|#\d|://|www\.|GH-\d|\b[0-9a-f]{7,40}\b"
    assert not re.search(linked, words), re.findall(linked, words)


def test_never_more_than_forty_lines(assay: Callable[..., Any], write: Callable[..., Path]) -> None:
    def rows(step: int) -> list[Any]:
        return [
            capture(f"p{n}", passed=n % step != 0, metadata={"category": f"c{n}"})
            for n in range(60)
        ]

    files = [write(f"run{n}", rows(n + 2)) for n in range(9)]
    entry = {"trialNum": 1, "output": "", "trajectory": [], "duration": 5, "pass": True, "score": 1}
    many = [
        {"id": f"p{n}", "input": "q", "k": 1, "trials": [entry], "metadata": {}} for n in (1, 2)
    ]
    files += [write("many", many), write("more", many)]
    lines = assay("report", *files, "-f", "markdown").stdout.splitlines()
    assert len(lines) <= 40
    assert any("more runs in the report" in line for line in lines)
    alone = assay("report", *files[:2], "-f", "markdown").stdout.splitlines()
    assert len(alone) <= 40
    assert re.search(r"<details><summary>Pass rate by category, \d+ of 60</summary>", str(alone))
    assert alone.count("</details>") == 1


def test_cost_says_for_how_many_trials_it_is_known(
    assay: Callable[..., Any], write: Callable[..., Path]
) -> None:
    usage = {"usage": {"inputTokens": 1, "outputTokens": 1, "costUsd": 0.5}}
    rows = [capture(f"p{n}", passed=True, **(usage if n < 3 else {})) for n in range(8)]
    text = assay("report", write("a", rows), "-f", "markdown").stdout
    assert "- Cost: a $1.5000, known for 3 of 8 trials" in text


def _trials(prompt_id: str, *passes: bool) -> Any:
    entries = [
        {"trialNum": n, "output": "", "trajectory": [], "duration": 5, "pass": passed,
         "score": float(passed)}
        for n, passed in enumerate(passes, 1)
    ]  # fmt: skip
    return {"id": prompt_id, "input": "q", "k": len(passes), "trials": entries, "metadata": {}}


@pytest.mark.parametrize(
    ("n_failed", "margin", "code", "sign", "words"),
    [
        (0, 0.15, 0, "✅", "Passed: new is not worse than main by 15 points."),
        (20, 0.15, 3, "❌", "Failed: new is worse than main."),
        (5, 0.05, 4, "❔", "Not decided: whether new is worse than main by 5 points is open."),
    ],
)
def test_the_comment_says_what_the_sequential_gate_says(
    assay: Callable[..., Any],
    write: Callable[..., Path],
    n_failed: int,
    margin: float,
    code: int,
    sign: str,
    words: str,
) -> None:
    main = write("m", [_trials(f"p{n}", *[n > 0] * 4) for n in range(40)])
    new = write("n", [_trials(f"p{n}", n > n_failed) for n in range(40)])
    runs = f"main:{main}", f"new:{new}", "--sequential", "--margin", margin
    gate = assay("compare", *runs, "--fail-on", "regression", "-f", "table")
    assert gate.code == code, gate.stderr
    shown = assay("report", *runs, "-f", "markdown").stdout
    numbers = r" [\d.]+ % → [\d.]+ % pass \([-+\d.]+ points, interval [-+\d.]+ to [-+\d.]+ at every"
    assert re.match(re.escape(f"{sign} **{words}**") + numbers, shown.splitlines()[2])
    assert " at every look), 40 prompts." in shown
    for other in ("not decided whether", "is the same as", "is better than"):
        assert other not in shown
    assert assay("report", *runs[:3], "--margin", 0, "-f", "markdown").code == 2


def test_the_rates_of_the_table_add_up_to_the_difference(
    assay: Callable[..., Any], write: Callable[..., Path]
) -> None:
    main = write("m", [_trials(f"p{n}", *[n < 30] * 4) for n in range(40)])
    new = write("n", [_trials(f"p{n}", n > 2) for n in range(30)])
    runs = f"main:{main}", f"new:{new}", "--sequential", "--margin", "0.2"
    lines = assay("report", *runs, "-f", "markdown").stdout.splitlines()
    cells = [line.split(" | ")[:2] for line in lines if line.startswith("| ")]
    assert cells[1:] == [
        ["| main", "75.0 %"],
        ["| new", "90.0 %"],
        ["| main, the 30 prompts in both", "100.0 %"],
        ["| new - main", "-10.0 points"],
    ]
