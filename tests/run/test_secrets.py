"""Which variables are secrets, and how their values are covered."""

import json

import pytest

from assay.run.secrets import Secrets

VALUE = "s3cr3t-value-0123"


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "API_KEY",
        "apikey",
        "HF_TOKEN",
        "GITHUB_TOKEN_2",
        "DB_PASSWORD",
        "AWS_SECRET",
    ],
)
def test_secret_names(name: str) -> None:
    assert Secrets({name: VALUE}).mask(f"x {VALUE} y".encode()) == b"x [redacted]******* y"


@pytest.mark.parametrize("name", ["PATH", "MONKEY", "KEYBOARD", "TOKENIZERS_PARALLELISM", "HOME"])
def test_other_names(name: str) -> None:
    assert Secrets({name: VALUE}).mask(VALUE.encode()) == VALUE.encode()


def test_short_values_and_paths_are_left_alone() -> None:
    secrets = Secrets({"API_KEY": "1234567", "SSH_KEY": "/home/me/.ssh/id"})
    assert secrets.longest == 0


def test_one_secret_within_another() -> None:
    secrets = Secrets({"A_KEY": "abcdefgh", "B_KEY": "abcdefgh-and-more"})
    assert b"abcdefgh" not in secrets.mask(b"1 abcdefgh-and-more 2 abcdefgh 3")


@pytest.mark.parametrize("value", ['with"quote\\and/é', "tab\tand ü and 😀", "plain-ascii"])
def test_a_value_inside_json_and_json_inside_json(value: str) -> None:
    secrets = Secrets({"API_KEY": value})
    texts = [value]
    for ascii_only in (True, False):
        once = json.dumps({"k": value}, ensure_ascii=ascii_only)
        texts += [once, json.dumps({"k": once}, ensure_ascii=ascii_only)]
    for text in texts:
        masked = secrets.mask_text(text)
        assert "redacted" in masked
        assert len(masked.encode()) == len(text.encode())
        assert "quote" not in masked
        assert "plain" not in masked
