"""What does not decode is explained to the person who wrote it, not to a programmer."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from assay.errors import InputError
from assay.records.rows import decode_row, explain
from assay.records.spec import HINT, Prompt


class Thing(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    flag: bool | None = None
    place: Literal["network", "no-network"] | None = None
    share: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    all_things: list["Thing"] = []
    by_number: dict[int, str] = {}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"flag": "yes"}, '"flag" must be true or false, not text'),
        ({"place": "yes"}, '"place" must be one of: network, no-network'),
        ({"share": -1}, '"share" must be a number of at least 0'),
        ({"share": 2}, '"share" must be a number below 1'),
        ({"count": 1.5}, '"count" must be a whole number, not a decimal number'),
        ({"count": 0}, '"count" must be a number of at least 1'),
        (
            {"allThings": [{}, {"flag": 1}]},
            '"allThings[1].flag" must be true or false, not a number',
        ),
        (
            {"allThings": [{"shar": 1}]},
            'unknown field "allThings[0].shar"; did you mean "allThings[0].share"?',
        ),
        ({"zzz": 1}, 'unknown field "zzz"; the fields are: flag, place, share, count, '),
        ({"byNumber": {"a": "b"}}, '"byNumber" has a key that must be a whole number, not text'),
        ([], "must be an object, not a list"),
    ],
)
def test_a_wrong_value_is_explained_in_plain_words(value: Any, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(value), type=Thing)
    words = explain(caught.value, Thing)
    assert words.startswith(said) if said.endswith(" ") else words == said
    assert not set("`$") & set(words)


@pytest.mark.parametrize(
    ("more", "said", "has_hint"),
    [
        (
            {"expect": {"contain": "x"}},
            'unknown field "expect.contain"; did you mean "expect.contains"?',
            False,
        ),
        ({"files": {"a": 1}}, '"files" must be text or an object, not a number', False),
        ({"graders": ["a", 2]}, '"graders[1]" must be text, not a number', False),
        ({"expect": {"file": 3}}, '"expect.file" must be text, an object or a list, not a', False),
        ({"input": 3}, '"input" must be text or a list, not a number', True),
        ({"id": None}, '"id" must be text, not null', True),
    ],
)
def test_a_wrong_prompt(more: dict[str, Any], said: str, has_hint: bool) -> None:
    line = msgspec.json.encode({"id": "a", "input": "b", **more})
    with pytest.raises(InputError) as caught:
        decode_row("p.jsonl:1", line, Prompt, hint=HINT)
    assert caught.value.message.startswith(f"p.jsonl:1: {said}")
    assert bool(caught.value.hint) is has_hint, "a hint about other fields leads astray"


def test_a_missing_field() -> None:
    with pytest.raises(InputError) as caught:
        decode_row("p:1", b'{"id": "a"}', Prompt, hint=HINT)
    assert (caught.value.message, caught.value.hint) == ("p:1: missing field `input`", HINT)
