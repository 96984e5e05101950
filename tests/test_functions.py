"""The key of a Python function: its name and a hash of what it does."""

from functools import partial

import pytest

from assay import functions
from assay.errors import InputError, PluginError
from assay.records.spec import FunctionCall


def shout(text):
    return text.upper()


def longer_than(n):
    def grader(trial):
        return len(trial.output) > n

    return grader


class Threshold:
    def __init__(self, n):
        self.n = n

    def __call__(self, trial):
        return len(trial.output) > self.n

    def method(self, trial):
        return self(trial)


def test_the_same_source_has_the_same_version():
    assert functions.version_of(longer_than(3)) == functions.version_of(longer_than(3))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (longer_than(3), longer_than(4)),
        (longer_than(3), shout),
        (lambda t: True, lambda t: False),
        (lambda t, n=1: n, lambda t, n=2: n),
        (lambda t: t.output, lambda t: t.hint),
        (partial(longer_than, 3), partial(longer_than, 4)),
        (Threshold(3), Threshold(4)),
        (Threshold(3).method, Threshold(4).method),
        (longer_than(longer_than(3)), longer_than(longer_than(4))),
    ],
)
def test_what_decides_an_answer_is_in_the_version(one, other):
    assert functions.version_of(one) != functions.version_of(other)


def test_an_object_whose_text_holds_an_address_has_one_version():
    assert functions.version_of(longer_than(object())) == functions.version_of(
        longer_than(object())
    )


def test_a_function_that_encloses_itself_has_a_version():
    def grader(trial):
        return grader is not None

    assert len(functions.version_of(grader)) == 12


def test_the_key_has_name_and_version():
    ((key, function),) = functions.by_key([shout]).items()
    assert functions.split_key(key) == ("shout", functions.version_of(shout))
    assert function is shout
    assert functions.as_text(shout) == f"function:{key}"


def test_two_functions_that_cannot_be_told_apart_are_refused():
    with pytest.raises(InputError, match="two functions are called 'grader'") as caught:
        functions.by_key([longer_than(object()), longer_than(object())])
    assert caught.value.hint == "give them different names"


def test_a_function_of_another_process_is_not_there():
    with pytest.raises(PluginError, match="'shout' is not in this process"):
        functions.find("shout@0")


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(functions, "known", {})
    return functions.known


def test_an_agent_gets_the_text_and_earlier_turns_if_it_wants_them(known):
    known["a"] = shout
    known["b"] = lambda text, history: f"{len(history)}: {text}"
    history = (("hello", "hi"),)
    assert functions.answer_to(FunctionCall("a", "more", history)) == "MORE"
    assert functions.answer_to(FunctionCall("b", "more", history)) == "1: more"


def test_an_agent_may_be_async(known):
    async def answer(text):
        return text * 2

    known["a"] = answer
    assert functions.answer_to(FunctionCall("a", "x")) == "xx"


def test_an_answer_is_a_text(known):
    known["a"] = len
    with pytest.raises(TypeError, match="the agent returned int, and not a text"):
        functions.answer_to(FunctionCall("a", "x"))
