"""Which variables are secrets, and how their values are covered."""

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.records.capture import Cause, Failure, Timing, ToolCall, Usage
from assay.records.trial import Trial
from assay.run.raw import RawStreams
from assay.run.secrets import Secrets, is_secret_name
from assay.run.workspace import keep_files

VALUE = "s3cr3t-value-0123"
PEM = """-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASC
BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKB
tail==
-----END PRIVATE KEY-----
"""


SECRET_NAMES = """
OPENAI_API_KEY API_KEY apikey apiKey HF_TOKEN GITHUB_TOKEN_2 DB_PASSWORD AWS_SECRET PASSWORD
PASS DB_PASS DBPASS SSHPASS MYSQL_PWD DB_PWD GH_PAT SENTRY_DSN BEARER BEARERTOKEN BEARER_TOKEN
PGPASSWORD REDIS_AUTH CREDENTIALS GOOGLE_CREDENTIALS PRIVATE_KEY PRIVATEKEY PEM_KEY APIKEY
ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN SESSION_COOKIE COOKIE
SLACK_WEBHOOK SLACK_WEBHOOK_URL NEXT_PUBLIC_API_KEY GHTOKEN my.secret dbPassword
AZURE_STORAGE_CONNECTION_STRING AUTHORIZATION AUTH_HEADER PASSPHRASE JWT
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)
    assert Secrets({name: VALUE}).mask(f"x {VALUE} y".encode()) == b"x [redacted]******* y"


OTHER_NAMES = """
PATH MONKEY KEYBOARD HOTKEY TOKENIZERS_PARALLELISM HOME PASSAGE COMPASS BYPASS SSH_AUTH_SOCK PWD
OLDPWD XAUTHORITY GIT_AUTHOR_NAME MAX_OUTPUT_TOKENS TOKEN_LIMIT SSL_KEY_FILE TOKEN_URL AUTH_TYPE
SSH_PUBLIC_KEY PATTERN SECRETARY XDG_SESSION_ID PASSENGER PATIENCE DSNAME KEYMAP DEBIAN_FRONTEND
AUTHOR SECRETS_DIR GIT_ASKPASS_PATH BASE_URL 123 _ -
"""


@pytest.mark.parametrize("name", OTHER_NAMES.split())
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)
    assert Secrets({name: VALUE}).mask(VALUE.encode()) == VALUE.encode()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("1234567", "shorter than 8 characters"),
        ("metadata", "an ordinary word"),
        ("PRODUCTION", "an ordinary word"),
        ("workspaceDir", "an ordinary word"),
        ("input_tokens", "an ordinary word"),
    ],
)
def test_a_value_that_ordinary_text_may_hold_is_refused(value: str, why: str) -> None:
    secrets = Secrets({"SORT_KEY": value, "OTHER_TOKEN": "true"})
    assert secrets.refused == {"SORT_KEY": why}
    assert secrets.longest == 0


@pytest.mark.parametrize(
    "value",
    ["12345678", "correct-horse-battery", "qwertzuiopasdfghjklyx", "aB3dE6gH", "/k3y/v4lue"],
)
def test_other_values_are_covered(value: str) -> None:
    secrets = Secrets({"SOME_KEY": value})
    assert not secrets.refused
    assert value not in secrets.mask_text(f"it is {value}.")


def test_the_path_of_a_file_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "id_rsa"
    path.touch()
    secrets = Secrets({"SSH_KEY": str(path), "OTHER_KEY": str(tmp_path / "missing")})
    assert secrets.mask_text(str(path)) == str(path)
    assert "missing" not in secrets.mask_text(str(tmp_path / "missing"))


def test_a_file_that_an_agent_makes_does_not_uncover_a_value(tmp_path: Path) -> None:
    value = tmp_path / "k3y"
    assert "k3y" not in Secrets({"A_KEY": str(value)}).mask_text(str(value))
    value.touch()
    assert "k3y" not in Secrets({"A_KEY": str(value)}).mask_text(str(value))


def test_one_secret_within_another() -> None:
    secrets = Secrets({"A_KEY": "abcdefg1", "B_KEY": "abcdefg1-and-more"})
    assert b"abcdefg1" not in secrets.mask(b"1 abcdefg1-and-more 2 abcdefg1 3")


def test_the_password_of_a_url_is_covered_with_and_without_the_url() -> None:
    url = "postgres://app:p%40ss-w0rd@db.example:5432/main"
    secrets = Secrets({"DATABASE_URL": url, "HTTP_PROXY": "http://me:pr0xy-pass@proxy:3128"})
    masked = secrets.mask_text(f"{url} p%40ss-w0rd p@ss-w0rd pr0xy-pass http://proxy:3128")
    assert masked.endswith("http://proxy:3128")
    for part in ("w0rd", "db.example", "pr0xy"):
        assert part not in masked


def test_passwords_inside_other_secrets() -> None:
    secrets = Secrets(
        {
            "PG_DSN": "host=db user=app password=h1dd3n-away",
            "SENTRY_DSN": "https://0123456789abcdef@sentry.example/1",
            "GOOGLE_CREDENTIALS": json.dumps({"type": "service", "private_key": PEM}),
        }
    )
    for text in ("h1dd3n-away", "0123456789abcdef", PEM.splitlines()[1]):
        assert text not in secrets.mask_text(f"<{text}>")


@pytest.mark.parametrize("value", ['with"quote\\and/é', "tab\tand ü and 😀", "plain-ascii"])
def test_a_value_inside_json_and_json_inside_json(value: str) -> None:
    secrets = Secrets({"API_KEY": value})
    texts = [value]
    for ascii_only in (True, False):
        once = json.dumps({"k": value}, ensure_ascii=ascii_only)
        texts += [once, json.dumps({"k": once}, ensure_ascii=ascii_only)]
    for text in texts:
        masked = secrets.mask_line(text.encode()).decode()
        assert "redacted" in masked
        assert len(masked.encode()) == len(text.encode())
        assert "quote" not in masked
        assert "plain" not in masked
        if text != value:
            assert json.loads(masked).keys() == {"k"}


def _spelled(value: str) -> dict[str, str]:
    data = value.encode()
    return {
        "plain": value,
        "json": json.dumps(value),
        "json in json": json.dumps(json.dumps(value)),
        "url": quote(value, safe=""),
        "url in lower case": re.sub("%..", lambda m: m[0].lower(), quote(value, safe="")),
        "base64": base64.b64encode(data).decode(),
        "base64 without padding": base64.b64encode(data).decode().rstrip("="),
        "base64 for urls": base64.urlsafe_b64encode(data).decode(),
        "base64 as mime": base64.encodebytes(data).decode(),
        "base64 behind 1": base64.b64encode(b"x" + data + b"y").decode(),
        "base64 behind 2": base64.b64encode(b"xx" + data + b"y").decode(),
    }


@pytest.mark.parametrize("value", ["k/3y+v4lue?and~more>", PEM, PEM.replace("\n", "\\n")])
@pytest.mark.parametrize("spelling", _spelled(VALUE))
def test_every_spelling_is_covered(value: str, spelling: str) -> None:
    text = _spelled(value)[spelling]
    masked = Secrets({"MY_KEY": value}).mask_text(f"before {text} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    left = masked
    for word in ("before", "after", "redacted", "BEGIN PRIVATE KEY", "END PRIVATE KEY"):
        left = left.replace(word, "")
    kept = "".join(c for c in left if c.isalnum())
    assert len(kept) <= 7, masked  # at most the edges, where base64 mixes in what surrounds it


def test_each_line_of_a_key_is_covered_alone() -> None:
    secrets = Secrets({"PEM_KEY": PEM})
    for line in PEM.splitlines()[1:3]:
        assert line not in secrets.mask_text(f"it contains {line}")
    assert secrets.mask_text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_numbers_and_names_in_json_stay_as_they_are() -> None:
    secrets = Secrets({"DB_PASSWORD": "12345678", "A_KEY": "input-tokens", "B_KEY": "x" * 22})
    line = (
        b'{"input_tokens":12345678,"a":-12345678.5, "b":[12345678],"c":112345678,'
        b'"%b":1,"d":"my 12345678 and 123456789","12345678":"e"}' % (b"x" * 22)
    )
    masked = json.loads(secrets.mask_line(line))
    assert masked == {
        "input_tokens": 12345678,
        "a": -12345678.5,
        "b": [12345678],
        "c": 112345678,
        "x" * 22: 1,
        "d": "my [redacte and 123456789",
        "[redacte": "e",
    }
    # The same numbers inside something that is no JSON as a whole, such as a database.
    row = b'\0\1{"tokens":12345678}\0 the password is 12345678.'
    assert secrets.mask(row) == b'\0\1{"tokens":12345678}\0 the password is [redacte.'


def test_a_secret_is_not_found_across_an_escape() -> None:
    r"""The n of \n belongs to the escape, not to the text behind it."""
    line = rb'{"text":"a\nabcdef12 and \\nabcdef12 and nabcdef12"}'
    masked = Secrets({"KEY": "nabcdef12"}).mask_line(line)
    assert json.loads(masked) == {"text": "a\nabcdef12 and \\[redacted and [redacted"}


@pytest.mark.parametrize("written", [r"\u0073\u0033cr3t\/v4lue", r"s3cr3t\u002fv4lue"])
def test_a_secret_in_needless_escapes_is_covered(written: str) -> None:
    line = f'{{"a":"x {written} y"}}'.encode()
    masked = Secrets({"KEY": "s3cr3t/v4lue"}).mask_line(line)
    assert len(masked) == len(line)
    assert json.loads(masked)["a"].startswith("x [redacted]")
    assert json.loads(masked)["a"].endswith(" y")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(value=json_values, secret=st.text(min_size=8, max_size=12), ascii_only=st.booleans())
def test_json_stays_json_of_the_same_shape(value: object, secret: str, ascii_only: bool) -> None:
    whole = {"value": value, "n": 12345678, secret: secret, "more": [f"a{secret}b", 1.5]}
    line = json.dumps(whole, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    secrets = Secrets({"API_KEY": secret, "B_KEY": "12345678"})
    masked = secrets.mask_line(line)
    assert len(masked) == len(line)
    assert _shape(json.loads(masked)) == _shape(json.loads(line))
    if secret in secrets.refused or not secrets.longest or secret != secret.strip():
        return
    if not secrets.refused:
        assert secret not in json.loads(masked)["more"][0]


@given(
    parts=st.lists(
        st.binary(max_size=6)
        | st.sampled_from(
            [
                b'{"a":"',
                b'"}',
                b'"',
                b"\\",
                rb"\u0073",
                rb"\ud800",
                rb"\/",
                b"s3cr3t/v",
                b"\xff",
                b"NaN",
            ]
        ),
        max_size=12,
    )
)
def test_any_bytes_can_be_masked(parts: list[bytes]) -> None:
    line = b"".join(parts).replace(b"\n", b"")
    secrets = Secrets({"KEY": "s3cr3t/v"})
    for text in (line, b'{"a":"' + line.replace(b'"', b"") + b'"}'):
        for mask in (secrets.mask, secrets.mask_line, secrets.mask_file):
            assert len(mask(text)) == len(text)
            assert b"s3cr3t/v" not in mask(text)


def test_bytes_that_are_not_utf8_do_not_hinder() -> None:
    line = b'{"a":"\xff \\n s3cr3t\\/v","n":NaN}'
    assert Secrets({"KEY": "s3cr3t/v"}).mask_line(line) == b'{"a":"\xff \\n [redacted","n":NaN}'


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return [_shape(v) for v in value.values()]
    if isinstance(value, list):
        return [_shape(v) for v in value]
    return str if isinstance(value, str) else value


def test_of_a_record_only_texts_are_masked() -> None:
    secrets = Secrets({"DB_PASSWORD": "12345678", "KEY": "id-000001"})
    row = Trial(
        id="id-000001",
        input="say 12345678",
        output="12345678",
        trajectory=[ToolCall(name="sh", input={"12345678": ["12345678", 12345678]})],
        metadata={"workspaceDir": "/w", "n": 12345678},
        timing=Timing(start=12345678, end=12345678),
        usage=Usage(input_tokens=12345678),
        failure=Failure(cause=Cause.AGENT_CRASH, message="said 12345678"),
    )
    masked = secrets.mask_record(row)
    assert masked.id == "id-000001"  # --resume finds rows by it
    assert (masked.input, masked.output) == ("say [redacte", "[redacte")
    assert masked.trajectory[0].input == {"[redacte": ["[redacte", 12345678]}
    assert masked.metadata == {"workspaceDir": "/w", "n": 12345678}
    assert masked.usage == row.usage
    assert masked.timing == row.timing
    assert masked.failure == Failure(cause=Cause.AGENT_CRASH, message="said [redacte")
    assert Secrets({"KEY": VALUE}).mask_record(row) is row


@pytest.mark.parametrize("n", [1, 40])
@given(where=st.integers(0, 600), which=st.integers(0, 39))
def test_few_and_many_secrets_are_found_at_every_place(n: int, where: int, which: int) -> None:
    values = [f"{i:02}-{i * 7919 % 1000003:06}-v4lue" for i in range(40)]
    secrets = Secrets({f"KEY_{i}": value for i, value in enumerate(values[:n])})
    value = values[which % n]
    text = "é" * (where // 2) + "x" * (where % 2) + value + "y" * (600 - where)
    assert secrets.occur_in(text.encode())
    assert value not in secrets.mask_text(text)
    assert not secrets.occur_in(text.replace(value, "v4lue").encode())


def test_kept_files_are_covered_with_their_names(tmp_path: Path) -> None:
    work, target = tmp_path / "work", tmp_path / "raw" / "kept" / "files"
    (work / VALUE).mkdir(parents=True)
    pretty = json.dumps({"tokens": 12345678, "say": ["12345678", VALUE]}, indent=2)
    (work / VALUE / "a.json").write_text(pretty)
    (work / f"{VALUE}.log").write_text(f"line\n{PEM}{VALUE}\n")
    (work / f"{VALUE[:-1]}4.log").write_text("two secrets of one length\n")
    secrets = Secrets(
        {"KEY": VALUE, "TWO_KEY": f"{VALUE[:-1]}4", "DB_PASSWORD": "12345678", "PEM_KEY": PEM}
    )
    with RawStreams(str(tmp_path / "raw")) as raw:
        keep_files(["**/*"], {"~/": tmp_path, "": work}, raw, secrets)
        raw.keep("kept")
    names = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
    assert names == ["[redacted]*******.log", "[redacted]*******.log*", "[redacted]*******/a.json"]
    kept = json.loads((target / names[2]).read_text())
    assert kept == {"tokens": 12345678, "say": ["[redacte", "[redacted]*******"]}
    log = (target / names[0]).read_text() + (target / names[1]).read_text()
    assert VALUE not in log
    assert "MIIE" not in log
    assert "tail==" not in log
