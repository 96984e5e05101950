"""exact, contains, regex, numeric, json-schema: what they say of a text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError, PluginError
from assay.graders.answer import find_json, last_number


@pytest.mark.parametrize(
    ("grader", "output", "fields", "passes"),
    [
        ("exact", " Paris\n", {"hint": "Paris"}, True),
        ("exact", "paris", {"hint": "Paris"}, False),
        ("exact:ignore_case=true", "paris", {"hint": "Paris"}, True),
        ("exact:ignore-case=yes,trim=false", "paris ", {"hint": "Paris"}, None),
        ("exact:trim=false", "Paris ", {"hint": "Paris"}, False),
        ("exact", "x", {"reference": "x"}, True),
        ("exact", "h", {"hint": "h", "reference": "r"}, True),
        ("exact:against=reference", "r", {"hint": "h", "reference": "r"}, True),
        ("exact:Lima", "Lima", {"hint": "Paris"}, True),
        ("exact:text=a,b", "a,b", {}, True),
        ("contains:Paris", "It is Paris.", {}, True),
        ("contains:Paris", "It is paris.", {}, False),
        ("contains", "It is Paris.", {"hint": "Paris"}, True),
        ("contains:text=a,text=b", "b then a", {}, True),
        ("contains:text=a, b,ignore_case=true", "A, B", {}, True),
        ('contains:{"text": ["a=b", "{"]}', "{a=b}", {}, True),
        (r"regex:^\d+$", "42", {}, True),
        (r"regex:^\d+$", "42 apples", {}, False),
        (r"regex:a{2},b=", "xaa,b=", {}, True),
        (r"regex:pattern=HELLO,ignore_case=true", "hello", {}, True),
        ("regex:pattern=secret,negate=true", "the secret", {}, False),
        ("numeric:42", "so it is 41, no: 42.", {}, True),
        ("numeric:42", "42, or 43", {}, False),
        ("numeric", "1,234.50", {"hint": "the answer is 1234.5"}, True),
        ("numeric:tolerance=0.01", "3.15", {"hint": "3.14"}, True),
        ("numeric:tolerance=0.01", "3.1500001", {"hint": "3.14"}, False),
        ("numeric:relative=0.1", "-109", {"hint": "-100"}, True),
        ("numeric:relative=0.1", "-111", {"hint": "-100"}, False),
        ("numeric:expected=7,pattern=total: (.*)", "total: 7\nrows: 3", {}, True),
        ("numeric:7", "none", {}, False),
        ("numeric:7", "−7", {}, False),
        ("numeric:-7", "−7", {}, True),
        ("numeric:1.2", "version 1.2.3", {}, False),
        ("numeric:1", "1e12345", {}, False),
        ("numeric:3", "3.", {}, True),
    ],
)
def test_verdicts(ask, grader, output, fields, passes) -> None:
    if passes is None:
        with pytest.raises(InputError):
            ask(grader, output, **fields)
        return
    grade = ask(grader, output, **fields)
    assert grade.pass_ is passes
    assert grade.score == float(passes)


def test_contains_scores_the_share(ask) -> None:
    assert ask("contains:text=a,text=b,text=z", "ab").score == pytest.approx(2 / 3)


@pytest.mark.parametrize("grader", ["exact", "contains", "numeric", "exact:against=reference"])
def test_nothing_to_compare_with_is_not_the_agents_fault(ask, grader) -> None:
    with pytest.raises(PluginError, match="nothing to compare with"):
        ask(grader, "x")


def test_a_hint_without_a_number_is_not_the_agents_fault(ask) -> None:
    with pytest.raises(PluginError, match="no number to compare with"):
        ask("numeric", "7", hint="seven")


@pytest.mark.parametrize(
    "grader",
    [
        "regex",
        "regex:",
        "regex:(",
        "contains:",
        "json-schema",
        "judge",
        "judge:agent=demo",
        "judge:be kind",
        "command:run=true,limit_s=-1",
        "command:run=true,limit_s=nan",
        "git:max_files=-1",
        "git:test='",
        "tools:",
        "tools:max_calls=-1",
        "regex:a,negate=true",
        "numeric:tolerance=-1",
        "numeric:tolerance=nan",
        "numeric:tolerance=much",
        "exact:nope=1,trim=true",
        'exact:{"nope": 1}',
        "exact:{broken",
        "tools",
        "tools:match=Bash",
        "json-schema:no-such-file.json",
        'json-schema:{"schema": {"type": 7}}',
        "numeric:expected=1,pattern=(a)(b)",
        "judge:agent=demo,rubric=",
        "judge:agent=demo,rubric=x,threshold=2",
        "command:run=a,sh=b",
        "command:'",
    ],
)
def test_wrong_options_are_said_before_any_row(ask, grader) -> None:
    with pytest.raises((InputError, PluginError)) as caught:
        ask(grader, "x")
    assert caught.value.message
    assert "__init__" not in caught.value.message


def test_a_number_of_very_many_digits_is_not_written_out(ask) -> None:
    assert len(ask("numeric:7", "1" * 100_000).reasoning) < 200


def test_a_pattern_that_never_ends_is_ended(ask, ask_apart) -> None:
    for way in (ask, ask_apart):
        began = time.monotonic()
        with pytest.raises(PluginError, match="no answer"):
            way("regex:(a+)+$", "a" * 45 + "!", timeout_s=0.4)
        assert time.monotonic() - began < 8


@given(st.text(), st.integers(-(10**12), 10**12))
def test_the_last_number_is_found_behind_any_text(text, number) -> None:
    assert last_number(f"{text} {number}") == number


@given(st.text(alphabet="0123456789.,eE+-−/ ", max_size=300))
def test_looking_for_numbers_never_fails(text) -> None:
    last_number(text)


def test_looking_for_numbers_takes_linear_time() -> None:
    began = time.process_time()
    for unit in ("1,", "1", "1.", ".", "1e", "-", "111,111,11"):
        last_number(unit * 200_000)
    assert time.process_time() - began < 3


SCHEMA = (
    '{"schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}'
)


@pytest.mark.parametrize(
    ("output", "passes"),
    [
        ('{"n": 1}', True),
        ('{"n": "1"}', False),
        ("[]", False),
        ('Here it is:\n```json\n{"n": 2}\n```\nDone.', True),
        ('```\n{"n": 2}\n```\n```json\n{"m": 2}\n```', False),
        ("no JSON at all", False),
        ('{"n": 1} and more', False),
        ("[" * 100_000 + "]" * 100_000, False),
        ('{"n": NaN}', False),
        ("", False),
    ],
)
def test_json_schema(ask, output, passes) -> None:
    assert ask(f"json-schema:{SCHEMA}", output).pass_ is passes


def test_json_schema_from_a_file_and_its_version(ask, script) -> None:
    from assay import plugins

    one = script('{"type": "object"}', "one.json")
    two = script('{"type": "array"}', "two.json")
    assert ask(f"json-schema:{one}", "{}").pass_
    versions = {plugins.grader(plugins.grader_ref(f"json-schema:{p}")).version for p in (one, two)}
    assert len(versions) == 2
    marked = script('\ufeff{"type": "object"}', "marked.json")  # as some editors write it
    assert ask(f"json-schema:{marked}", "{}").pass_


def test_json_schema_fetches_nothing(ask) -> None:
    grader = 'json-schema:{"schema": {"$ref": "http://127.0.0.1:9/x.json"}}'
    with pytest.raises(Exception, match=r"Unresolvable|127\.0\.0\.1"):
        ask(grader, "{}", timeout_s=5)


def test_find_json_takes_the_last_block() -> None:
    assert find_json("~~~\n1\n~~~\n````json\n2\n````") == 2
