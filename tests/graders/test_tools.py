"""tools: assertions over a trajectory."""

import pytest

CALLS = [
    {"type": "thought", "content": "hm"},
    {"type": "tool_call", "name": "Read", "status": "completed", "input": {"path": "a.py"}},
    {"type": "tool_call", "name": "Bash", "status": "failed", "input": {"command": "pytest -q"}},
    {"type": "tool_call", "name": "mcp__x__y", "status": "completed", "input": "plain text"},
    "not even a step",
]


@pytest.mark.parametrize(
    ("options", "passes", "score"),
    [
        ("Read", True, 1),
        ("used=Read,used=Write", False, 0.5),
        ("used=mcp__*", True, 1),
        ("not_used=Write", True, 1),
        ("not-used=Bash", False, 0),
        ("in_order=Read,in_order=mcp__x__y", True, 1),
        ("in_order=Bash,in_order=Read", False, 0),
        ("in_order=Read,in_order=Read", False, 0),
        (r'match=Bash:"command":"pytest\b', True, 1),
        ("match=Read:b\\.py", False, 0),
        ("match=mcp*:^plain", True, 1),
        ("max_calls=3", True, 1),
        ("max_calls=2", False, 0),
        ("no_failed=true", False, 0),
        ("no_failed=true,not_used=Bash,used=Read,max_calls=9", False, 0.5),
    ],
)
def test_assertions(ask, options, passes, score) -> None:
    grade = ask(f"tools:{options}", trajectory=CALLS)
    assert (grade.pass_, grade.score) == (passes, score)


def test_an_empty_trajectory_used_nothing(ask) -> None:
    assert not ask("tools:Read").pass_
    assert ask("tools:max_calls=0").pass_
