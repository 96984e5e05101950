"""What the vendors' adapters share."""

from typing import Any

import pytest
from msgspec import UNSET

from assay.adapters.vendor import (
    add_usage,
    mcp_servers,
    parse_mcp,
    rewrite_variables,
    start_failure,
    status_cause,
    text_cause,
    variables_of,
    vendor_options,
)
from assay.errors import InputError
from assay.plugin import Ask
from assay.records.capture import Usage
from assay.records.recording import TurnEnd


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "expected an object"),
        ({"mcpServers": []}, "expected an object"),
        ({"mcpServers": {"a": {}}}, r"mcpServers\.a: needs either"),
        ({"mcpServers": {"a": {"command": "x", "url": "y"}}}, r"mcpServers\.a: needs either"),
        ({"a": {"command": ["x"]}}, r"f\.json: mcpServers\.a\.command: Expected"),
        ({"a": {"command": "x", "env": {"K": 1}}}, r"mcpServers\.a\.env"),
        ({"a": 5}, r"mcpServers\.a: Expected"),
    ],
)
def test_wrong_file_names_file_and_field(content: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_mcp(content, "f.json")


def test_servers_of_user_and_world() -> None:
    mcp = {"mcpServers": {"a": {"command": "mine"}, "b": {"httpUrl": "http://b", "timeout": 5}}}
    options = vendor_options("x", mcp=mcp)
    world = {"a": {"command": "theirs", "args": ["${ONE}"], "env": {"K": "${TWO:-2} ${ONE}"}}}
    servers = mcp_servers(options, Ask(text="", cwd="", mcp_servers=world))
    assert servers["a"].command == "theirs"
    assert (servers["b"].url, servers["b"].is_remote) == ("http://b", True)
    assert variables_of(servers.values()) == ("ONE", "TWO")
    assert rewrite_variables("${ONE}/${TWO:-2}", "{env:NAME}") == "{env:ONE}/{env:TWO}"


@pytest.mark.parametrize(
    ("status", "cause"),
    [(401, "auth"), (403, "auth"), (429, "provider"), (500, "provider"), (529, "provider")],
)
def test_status(status: int, cause: str) -> None:
    assert status_cause(status) == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Invalid API key", "auth"),
        ("You are not logged in", "auth"),
        ("429 Too Many Requests", "provider"),
        ("connect ECONNREFUSED 127.0.0.1:1", "provider"),
        ("You exceeded your current quota", "provider"),
        ("the file does not exist", None),
    ],
)
def test_words(text: str, cause: str | None) -> None:
    assert text_cause(text) == cause


def test_usage_whose_cost_is_known_in_part_has_none() -> None:
    known = Usage(input_tokens=1, cost_usd=2.0, cost_source="reported")
    guessed = Usage(input_tokens=1, cost_usd=1.0, cost_source="estimated")
    both = add_usage([known, None, guessed])
    assert both
    assert (both.input_tokens, both.cost_usd, both.cost_source) == (2, 3.0, "estimated")
    partly = add_usage([known, Usage(input_tokens=1)])
    assert partly
    assert (partly.input_tokens, partly.cost_usd, partly.cost_source) == (2, UNSET, UNSET)
    assert add_usage([None]) is None


def test_process_that_never_began() -> None:
    failure = start_failure("x", TurnEnd(exit_code=1), "\x1b[91mError: \x1b[0mno such flag\nhelp")
    assert failure
    assert (failure.cause, failure.message) == ("spawn", "x did not start: Error: no such flag")
    assert start_failure("x", TurnEnd(exit_code=0), "") is None
    assert start_failure("x", TurnEnd(exit_code=137, signal="SIGKILL"), "") is None
