"""The sentence about a verdict: what it says of which facts, and that nothing else words one."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.report.experiment import effect_lines, look_first
from assay.report.sentence import Numbers, effects_sentence, sentences, word_verdicts
from assay.report.text import percents, points

SOURCE = Path(assay.__file__).parent
PACKAGES = (SOURCE, SOURCE.with_name("assay_arc"))
ALIKE = {"nPrompts": 40, "nUnits": 40, "wins": 0, "losses": 0, "trialsPerPrompt": None}


def sections(
    rates: tuple[float, float] = (0.45, 0.9),
    ends: tuple[float, float] = (0.236, 0.595),
    verdict: dict[str, Any] | None = None,
    pair: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The sections of a comparison of two runs, as far as a sentence reads them."""
    rate = {
        **ALIKE,
        "meanA": rates[0],
        "meanB": rates[1],
        "difference": rates[1] - rates[0],
        "interval": {"low": ends[0], "high": ends[1]},
        "wins": 20,
        "losses": 2,
        "trialsPerPrompt": 1.0,
    }
    runs = {"runA": "control", "runB": "relnotes"}
    found = {**runs, "passRate": rate, "adjustedP": 0.001, "amounts": {}, "regressedChance": []}
    found |= {"bounds": None, "verdict": {"code": "better"}, **(pair or {})}
    judged = {**runs, "code": "better", "healthy": True, **(verdict or {})}
    meta = {"runs": ["control", "relnotes"], "margin": 0.02}
    return {"pairs": [found], "verdict": [judged], "meta": meta, **more}


PROOF: dict[str, Any] = {"valid": True, "reasons": [], "uses": []}


def use(used: int, kind: str = "skill", **more: Any) -> dict[str, Any]:
    found = {"arm": "relnotes", "kind": kind, "name": "relnotes", "used": used, "trials": 40}
    return {**found, "inControl": 0, "controlTrials": 40, **more}


def said(found: dict[str, Any], **options: Any) -> str:
    return " ".join(sentences(found, found["verdict"][0], **options))


def amount(a: float, b: float) -> dict[str, Any]:
    return {"meanA": a, "meanB": b, "difference": b - a, "ratio": b / a}


def test_the_sentence_of_the_readme() -> None:
    amounts = {
        "costUsd": amount(0.012, 0.021),
        "tokens": amount(1000, 1800),
        "latencyMs": amount(8000, 12_000),
    }
    found = sections(
        proof={**PROOF, "uses": [use(38)]},
        pair={"amounts": amounts, "bounds": {"nNotMeasured": 3}},
    )
    assert said(found) == (
        "relnotes helps: 45 % → 90 % of prompts pass (+45 points, 95 % interval +24 to +60). "
        "It was used in 38 of 40 trials. Costs 1.8 times the tokens ($0.021 instead of $0.012 a "
        "prompt), takes 12 s instead of 8.0 s. 3 trials were not measured; they could not change "
        "this."
    )
    word_verdicts(found)
    assert found["verdict"][0]["words"] == found["pairs"][0]["verdict"]["words"] == said(found)


def test_fractions_are_for_scripts() -> None:
    assert said(sections(), fractions=True) == (
        "relnotes is better than control: 0.450 → 0.900 of prompts pass "
        "(+0.45, 95 % interval +0.24 to +0.59)."
    )


@pytest.mark.parametrize(
    ("code", "arms", "runs"),
    [
        ("better", "relnotes helps", "relnotes is better than control"),
        ("worse", "relnotes hurts", "relnotes is worse than control"),
        ("same", "relnotes makes no difference of 2 points or more", "the same as control within"),
        ("promising", "relnotes is promising, and not confirmed", ""),
        ("confirmed", "relnotes helps, which is confirmed", ""),
        ("not-worse", "", "relnotes is not worse than control by 2 points"),
        ("not-enough-data", "It is not decided whether relnotes helps", "is better than control"),
    ],
)
def test_every_code_has_words(code: str, arms: str, runs: str) -> None:
    verdict = {"code": code}
    assert arms in said(sections(verdict=verdict, proof=PROOF))
    assert runs in said(sections(verdict=verdict))


def test_what_was_never_used_is_the_headline() -> None:
    is_open = {"code": "not-enough-data"}
    text = said(sections(verdict=is_open, proof={**PROOF, "uses": [use(0)]}))
    assert text.startswith(
        "relnotes was never used in 40 trials: nothing was tested; `assay trigger` shows why. "
        "It is not decided whether relnotes helps: 45 %"
    )
    uses = [use(0, "mcp", name="db")]
    server = said(sections(verdict=is_open, proof={**PROOF, "uses": uses}))
    assert server.startswith("db was never used in 40 trials: nothing was tested. ")


def test_a_difference_that_is_shown_without_use_comes_from_the_offer() -> None:
    """A description in the prompt of the model can do that."""
    text = said(sections(proof={**PROOF, "uses": [use(0)]}))
    assert text.startswith("relnotes helps: 45 %")
    offer = "only the offer of it can have made the difference"
    assert f"It was never used in 40 trials: {offer}." in text
    both = [use(0, name="a"), use(3, name="b")]
    text = said(sections(proof={**PROOF, "uses": both}))
    assert "a was never used in 40 trials." in text


def test_use_in_the_control_is_said() -> None:
    text = said(sections(proof={**PROOF, "uses": [use(38, inControl=3)]}))
    assert "It was used in 38 of 40 trials, and in 3 of 40 of control." in text
    model = said(sections(proof={**PROOF, "uses": [use(40, "model", name="opus")]}))
    assert "It answered in 40 of 40 trials." in model


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (0.0, "Both arms fail everything: the prompts or the grader are too hard to tell."),
        (1.0, "Both arms pass everything: the prompts are too easy to tell."),
    ],
)
def test_floor_and_ceiling(rate: float, words: str) -> None:
    verdict = {"code": "not-enough-data", "nMorePrompts": 2798}
    found = sections((rate, rate), (-0.1, 0.1), verdict, proof=PROOF)
    found["pairs"][0]["passRate"] |= ALIKE
    text = said(found)
    assert words in text
    assert "more would decide" not in text


def test_where_nothing_differs_nothing_would_decide_it() -> None:
    found = sections((0.5, 0.5), (-0.1, 0.1), {"code": "not-enough-data", "nMorePrompts": 2798})
    found["pairs"][0]["passRate"] |= ALIKE
    text = said(found)
    assert "None of 40 prompts differs, which shows no difference and rules none out." in text
    assert "2798" not in text


def test_what_would_decide_it_is_said() -> None:
    open_ = {"code": "not-enough-data", "nMorePrompts": 1200}
    text = said(sections((0.5, 0.6), (-0.1, 0.3), open_, {"adjustedP": 0.2}))
    assert "40 prompts leave it open; about 1,200 more would decide it if it stays as seen" in text
    halfway = said(sections((0.5, 0.6), (0.01, 0.3), open_, {"adjustedP": 0.06}))
    assert "(the interval excludes zero, but the test does not decide: p = 0.06)" in halfway


def test_a_sequential_run_shows_the_look_that_decided() -> None:
    look = {"difference": 0.44, "interval": {"low": 0.1, "high": 0.7}}
    text = said(sections(verdict={"look": look, "margin": 0.1}))
    assert (
        "45 % → 90 % of prompts pass; when it was decided: +44 points, interval +10 to +70" in text
    )
    assert text.endswith(" at every look.")


def test_what_was_not_measured_or_lost_or_reused_is_said() -> None:
    open_ = {"code": "not-enough-data", "nUnmeasured": 1}
    text = said(sections(verdict=open_, proof=PROOF, reused={"control": 24}))
    assert "1 trial was not measured, which could turn it; the same command runs them again" in text
    assert "Trials reused from earlier runs: 24 of control." in text
    lost = {"code": "not-enough-data", "turned": "attempts that were lost"}
    assert "Attempts that were lost could turn it." in said(sections(verdict=lost))
    extra = said(sections(verdict={"facts": ["It was seen on two days."]}))
    assert extra.endswith("It was seen on two days.")


@pytest.mark.parametrize(("counted", "words"), [("passed", "passes"), ("failed", "failures")])
def test_the_verdict_says_how_many_passes_are_doubtful(counted: str, words: str) -> None:
    none = {"nPassed": 9, "nDoubtful": 0, "nHacked": 0, "nHoneypots": 1}
    runs = {"control": none, "relnotes": {**none, "nDoubtful": 2, "nHacked": 1}}
    found = sections(doubts={"countedAs": counted, "sentences": ["..."], "runs": runs})
    assert (
        "2 of 9 passes of relnotes are doubtful, and relnotes passed 1 trial of a honeypot, which "
        f"is a hack; these count as {words} (`assay explain` shows why)." in said(found)
    )
    assert "doubtful" not in said(sections())


def test_no_verdict_says_why() -> None:
    unhealthy = {"code": "not-enough-data", "healthy": False, "problems": {"control": "all failed"}}
    assert said(sections(verdict=unhealthy)) == (
        "UNHEALTHY (control: all failed): no verdict on relnotes."
    )
    invalid = {"valid": False, "reasons": ["relnotes lacks its treatment"], "uses": []}
    assert said(sections(proof=invalid)) == "INVALID (relnotes lacks its treatment): no verdict."
    changed = {"code": "not-enough-data", "changed": ["p1 has another input"]}
    assert said(sections(verdict=changed)).endswith("cannot be compared: p1 has another input.")


def test_an_ablation_says_what_matters() -> None:
    effects = [
        {"name": "relnotes", "difference": 0.4, "interval": {"low": 0.2, "high": 0.6}},
        {"name": "AGENTS.v2", "difference": 0.0, "interval": {"low": -0.08, "high": 0.08}},
    ]
    arms = {"control": [], "relnotes": ["relnotes"], "v2": ["AGENTS.v2"]}
    arms["both"] = ["relnotes", "AGENTS.v2"]
    rate = {"difference": 0.0, "interval": {"low": -0.05, "high": 0.05}}
    found = {
        "arms": arms,
        "quality": {"relnotes": {"passRate": 0.8}, "v2": {"passRate": 0.4}},
        "pairs": [{"runA": "relnotes", "runB": "both", "passRate": rate}],
    }
    assert effects_sentence(found, effects) == (
        "relnotes matters (+40 points, +20 to +60); "
        "AGENTS.v2 does not show an effect (0 points, -8 to +8); "
        "together not shown to be more than relnotes alone (0 points, -5 to +5)."
    )
    unread = {"kind": "instructions", "name": "AGENTS.v2.md", "used": 0, "inControl": 0}
    unused = [{**unread, "arm": arm, "trials": 12} for arm in ("v2", "both")]
    uses = [use(12, trials=12), *unused]
    never = effects_sentence({**found, "proof": {**PROOF, "uses": uses}}, effects)
    assert "AGENTS.v2 was never used in 24 trials: nothing was tested of it (0 points" in never
    assert never.startswith("relnotes matters")
    unused[1]["used"] = 1
    assert "never used" not in effects_sentence({**found, "proof": {"uses": uses}}, effects)
    for rate_of_all, said_of_all in (
        (1.0, "All arms pass everything: the prompts are too easy to tell."),
        (0.0, "All arms fail everything: the prompts or the grader are too hard to tell."),
    ):
        all_alike = {**found, "quality": {arm: {"passRate": rate_of_all} for arm in arms}}
        assert effects_sentence(all_alike, effects).endswith(said_of_all)


def test_the_small_picture_of_effects_cuts_no_name_and_fits_80_columns() -> None:
    interval = {"low": 0.2, "high": 0.6}
    names = ["relnotes", "a-skill-with-a-rather-long-name-indeed"]
    effects = [{"name": name, "difference": 0.4, "interval": interval} for name in names]
    lines = list(effect_lines(effects))
    assert [line.split()[0] for line in lines] == [names[0], names[1], "|"]
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].index("|") == lines[2].index("|")


def test_what_to_look_at_first() -> None:
    worse = {"runB": "relnotes", "regressed": ["p1"], "improved": ["p2"]}
    worse |= {"regressedChance": [0.3], "improvedChance": [0.3]}
    assert look_first([worse], []) == "Look first at prompt p1, which got worse with relnotes."
    nothing = {"regressed": [], "regressedChance": []}
    assert look_first([worse | nothing], []).endswith("which got better with relnotes.")
    # One trial of three less is no change to look at while there is one that is beyond chance.
    sure = worse | {"improvedChance": [0.01]}
    assert look_first([sure], []) == "Look first at prompt p2, which got better with relnotes."
    both = sure | {"regressed": ["p1", "p3"], "regressedChance": [0.3, 0.02]}
    assert look_first([both], []) == "Look first at prompt p3, which got worse with relnotes."
    assert look_first([worse], ["UNHEALTHY (…)"]).startswith("First fix what the verdict names;")


@pytest.mark.parametrize(
    ("rates", "shown"),
    [
        ((9963 / 9995, 0.9955, 0.9978), ["99.7", "99.6", "99.8"]),
        ((1.0, 1.0, 1.0), ["100", "100", "100"]),
        ((0.0, 0.0004), ["0.00", "0.04"]),
        ((0.45, 0.9), ["45", "90"]),
        ((0.452, 0.4524), ["45.20", "45.24"]),
    ],
)
def test_no_rate_is_rounded_to_all_none_or_another(rates: Any, shown: list[str]) -> None:
    assert percents(*rates) == shown


def test_a_fraction_of_nearly_all_is_not_all() -> None:
    assert Numbers(fractions=True).rates(9963 / 9995, 9991 / 9995) == ["0.9968", "0.9996"]
    assert Numbers(fractions=True).rates(0.45, 1.0, 0.0) == ["0.450", "1.000", "0.000"]


def test_rates_and_difference_add_up() -> None:
    assert percents(0.446, 0.904, difference=0.458) == ["44.6", "90.4"]
    assert points(-0.0004, (-0.3, 0.0199), 0.02) == ["-0.04", "-30.00", "+1.99"]


WORDED = re.compile(
    r"\b(helps|hurts|makes no difference|is (the )?(better|worse|same) (than|as)|never used"
    r"|not decided whether|is promising|no verdict on)\b"
)
ELSEWHERE = {"cli/ab.py", "cli/help.py", "cli/trials.py", "report/sentence.py", "world.py"}
"""Help may speak of verdicts; only one module makes them."""


def texts(path: Path) -> set[str]:
    """The texts of a module that reach a user: no docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    }


def test_only_one_module_words_a_verdict() -> None:
    found = {
        str(path.relative_to(package)): text
        for package in PACKAGES
        for path in package.rglob("*.py")
        if WORDED.search(re.sub(r'"\s*\n\s*f?"', "", path.read_text()))  # texts may go on below
        for text in texts(path)
        if WORDED.search(text)
    }
    assert "report/sentence.py" in found, "the pattern finds nothing any more"
    assert found.keys() <= ELSEWHERE, found
    for script in (SOURCE / "report" / "assets").glob("*.js"):
        assert not WORDED.search(re.sub(r"//.*|/\*.*?\*/", "", script.read_text())), script
