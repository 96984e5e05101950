"""Regular expressions in a schema: Python's meaning, but never more than linear time."""

import json
import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.adapters.declared import DeclaredAdapter
from assay.errors import InputError
from assay.records.patterns import Pattern, UnsupportedPatternError, Work
from assay.records.recording import RawLine

SLOW = "(a+)+$"
VICTIM = "a" * 37 + "b!"


def pieces(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeat = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])
    group = st.sampled_from(["({})", "(?:{})", "(?i:{})"])
    grouped = st.builds(lambda form, text: form.format(text), group, inner)
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{}|{}".format, inner, inner),
        st.builds("{}{}".format, grouped, repeat),
        grouped,
    )


ATOMS = ["a", "B", ".", "[ab]", "[^a]", r"\w", r"\d", r"\s", "^", "$", r"\b", r"\A", r"\Z", "é"]
PATTERNS = st.recursive(st.sampled_from(ATOMS), pieces, max_leaves=6)


@given(PATTERNS, st.text("aAbB1 é\n", max_size=8))
def test_it_means_what_it_means_in_python(text: str, subject: str) -> None:
    try:
        expected = re.compile(text)
    except re.error:
        with pytest.raises(UnsupportedPatternError):
            Pattern(text)
        return
    found = Pattern(text)
    assert found.search(subject, Work()) == bool(expected.search(subject))
    assert found.match(subject, Work()) == bool(expected.fullmatch(subject))


@pytest.mark.parametrize(
    "text", [SLOW, "(a|a)*$", "(a*)*$", "a*a*a*a*a*$", "(a?){30}a{30}$", "a+$"]
)
def test_a_text_that_makes_others_try_every_way_takes_no_time(text: str) -> None:
    began_s = time.process_time()
    assert not Pattern(text).match("a" * 20_000 + "b!", Work())
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize(
    "text",
    ["(?=a)b", "(?<!a)b", r"(a)\1", "(?>a)", "a++", "(a{100}){100}", "((){9999}){9999}", "["],
)
def test_what_cannot_be_matched_like_that_is_refused(text: str, schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedPatternError):
        Pattern(text)
    path = f"$[?search(@.text, {json.dumps(text)})]"
    events = [{"match": {"path": path, "value": "*"}, "emitAs": "message", "extract": {}}]
    with pytest.raises(InputError, match="regular expression") as caught:
        DeclaredAdapter(schema | {"outputEvents": events})
    assert "lookaround" in caught.value.hint


@pytest.fixture
def read(schema: dict[str, Any]) -> Callable[..., Any]:
    def reader(path: str, *events: Any) -> Any:
        rule = {"match": {"path": path, "value": "*"}, "emitAs": "message"}
        rule["extract"] = {"content": "$.type"}
        watch = DeclaredAdapter(schema | {"outputEvents": [rule]}).watch()
        for event in events:
            watch.feed(RawLine(0, json.dumps(event).encode()))
        return watch

    return reader


def test_the_functions_of_a_path(read: Callable) -> None:
    events = ({"type": "tool_x"}, {"type": "my tool_x"}, {"type": 3}, {"no": "type"})
    searched = read("$[?search(@, 'tool_.')]", *events)
    assert [step.content for step in searched.steps] == ["tool_x", "my tool_x"]
    matched = read("$[?match(@, 'tool_.')]", *events)
    assert [step.content for step in matched.steps] == ["tool_x"]
    given_by_the_event = read("$[?search(@, $.p)]", {"type": VICTIM, "p": SLOW})
    assert given_by_the_event.steps == []


def test_a_pattern_that_has_worked_too_much_matches_nothing_and_it_is_counted(
    read: Callable,
) -> None:
    heavy = "$[?search(@, '(a|b)*a(a|b){300}c')]"
    text = "".join(random.Random(1).choices("ab", k=60_000))
    began_s = time.process_time()
    seen = read(heavy, *({"type": text} for _ in range(50)), {"type": "a" * 301 + "c"})
    assert time.process_time() - began_s < 30
    assert seen.steps == []
    assert seen.events.unknown["(too much work for a regular expression)"] > 40


def test_an_event_nested_too_deeply_does_not_match(read: Callable) -> None:
    deep: Any = {"text": "x"}
    for _ in range(200):
        deep = {"a": deep}
    seen = read("$..text", deep, {"type": "m", "text": "x"})
    assert [step.content for step in seen.steps] == ["m"]
    assert seen.events.unknown == {"(no type)": 1}


def test_a_turn_ends_in_time(assay: Callable, agent: Callable, prompts: Callable) -> None:
    path = f"$..[?search(@,'{SLOW}')]"
    rule = {"match": {"path": path, "value": "*"}, "emitAs": "message", "extract": {}}
    began_s = time.monotonic()
    done = assay("capture", prompts(VICTIM), "-s", agent(outputEvents=[rule]), "-t", "20000")
    assert done.code == 0, done.stderr
    assert time.monotonic() - began_s < 20
    assert done.rows[0]["output"] == VICTIM
