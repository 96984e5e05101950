"""Texts of an agent that some patterns would look at again from every character."""

import time
from collections.abc import Callable
from typing import Any

import pytest

import assay.adapters.gemini as gemini
from assay.adapters.gemini import stream as gemini_stream
from assay.adapters.opencode import files as opencode_files
from assay.adapters.vendor import text_cause
from assay.graders.answer import find_json

N = 300_000


def find(text: str) -> Any:
    try:
        return find_json(text)
    except ValueError:
        return None


CASES: dict[str, Callable[[], Any]] = {
    "a log line of one word": lambda: opencode_files._fields("a" * N),
    "a log line of quotes": lambda: opencode_files._fields('a="' * (N // 3)),
    "many API errors": lambda: gemini._cause("[API Error: " * (N // 12)),
    "many thrown errors": lambda: gemini._thrown_error("ApiError: {" * (N // 11)),
    "a shell output of line feeds": lambda: gemini_stream._shell("Output: " + "\n" * N + "x", None),
    "a shell output of blanks": lambda: gemini_stream._shell("Output: " + " " * N + "x", None),
    "a long exit code": lambda: gemini_stream._shell(f"Output: x\nExit Code: {'1' * N}", None),
    "an answer of fences": lambda: find("```x\n" * (N // 5)),
    "an answer of tildes": lambda: find("~" * N),
    "an answer of tilde fences": lambda: find("".join("~" * n + "x\n" for n in range(3, 700))),
    "an error of words": lambda: text_cause("invalid connection " * (N // 19)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_in_time(name: str) -> None:
    began_s = time.process_time()
    CASES[name]()
    assert time.process_time() - began_s < 3


def test_the_error_of_the_api_is_found() -> None:
    said = 'x [API Error: {"error": {"code": 401}}] y'
    assert gemini._api_error(said) == '{"error": {"code": 401}}'
    assert gemini._api_error("[API Error: x") is None
    assert gemini._thrown_error('a\nApiError: {"a": {}} b\n}') == '{"a": {}}'
    assert gemini._thrown_error("ApiError: {\n}") is None
