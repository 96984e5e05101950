"""Bundles of evidence: what holds of an honest one, and what is refused of any other."""

import json
import os
import random
import shutil
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence.forgeries import FORGERIES, Forger, levels

from assay.errors import InputError
from assay.evidence.pack import PackRequest, pack
from assay.evidence.verify import LEVELS, Verification
from assay.records.bundle import MANIFEST, Bundle, BundleWriter, Damaged, tree_root

HERE = Path(__file__).parent
RELEASE, KEY = HERE / "release-0.1.0.zip", HERE / "release-0.1.0.pub"
"""A bundle of the first release with bundles, of an experiment that was registered: it is never
made again, because bundles that were published stay verifiable."""
GRADER = """def grade(output, hint):
    return {"pass": hint in output, "score": float(hint in output)}
"""


def states(path: Path, *keys: Path) -> dict[str, str]:
    return {name: level.state for name, level in levels(path, keys).items()}


def row(number: int, answer: str, hint: str = "42", **more: Any) -> dict[str, Any]:
    passed = hint in answer
    grade = {"pass": passed, "score": float(passed), "version": "1"}
    return {
        "id": f"p-{number}",
        "input": f"What is {number}?",
        "output": answer,
        "hint": hint,
        "trajectory": [{"type": "message", "content": answer, "timestamp": 3}],
        "metadata": {"exitCode": 0, "timedOut": False},
        "timing": {"start": 0, "end": 5, "total": 5},
        "toolErrors": False,
        "score": {k: v for k, v in grade.items() if k != "version"},
        "grades": {"contains": grade},
        "agent": {"adapter": "text"},
        "events": {"total": 1, "mapped": 1, "unknown": {}, "unparsed": 0, "oversized": 0,
                   "terminal": False},
        "raw": f"results.raw/p-{number}",
        "identity": {"covers": 1, "adapter": "simple", "graders": {"contains": "1"}},
        **more,
    }  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Four trials of an agent that prints text, with their raw streams."""
    path = tmp_path / "results.jsonl"
    answers = ["it is 42", "no idea", "42, I think", "SECRET-LIKE answer 42"]
    path.write_text("".join(json.dumps(row(n, text)) + "\n" for n, text in enumerate(answers)))
    for number, text in enumerate(answers):
        stream = tmp_path / f"results.raw/p-{number}/1.out"
        stream.parent.mkdir(parents=True)
        stream.write_text(f"{text}\n")
    return path


def bundle(results: Path, **more: Any) -> Path:
    output = results.with_name("evidence.zip")
    pack(PackRequest(given=[str(results)], output=output, **more))
    return output


def test_everything_holds_of_an_honest_bundle(results):
    found = levels(bundle(results))
    assert {name: level.state for name, level in found.items()} == {
        "intact": "holds",
        "signed": "none",
        "read again": "holds",
        "graded again": "holds",
        "computed again": "holds",
        "replayed": "none",
    }
    assert found["read again"].words == "4 of 4 trials"
    assert "contains 1" in found["graded again"].words


def test_the_bundle_of_the_first_release_is_verified_for_ever():
    found = states(RELEASE, KEY)
    assert found == dict.fromkeys(LEVELS, "holds") | {"replayed": "none"}


def test_the_same_input_gives_the_same_bytes(results, tmp_path):
    one = bundle(results).read_bytes()
    os.utime(results, (1, 1))
    assert bundle(results).read_bytes() == one


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_at_its_level(name, tmp_path, forger_key):
    level, make = FORGERIES[name]
    path = make(Forger(RELEASE), tmp_path / "forged.zip", forger_key)
    found = levels(path, (KEY,) if level == "signed" else (), only=level)
    assert found[level].state in ("differs", "unchecked")


def test_only_the_signature_tells_a_bundle_that_was_forged_throughout(tmp_path, forger_key):
    _, make = FORGERIES["row and stream edited signed by another key"]
    path = make(Forger(RELEASE), tmp_path / "forged.zip", forger_key)
    found = {name for name, state in states(path, KEY).items() if state == "differs"}
    assert found == {"signed"}


@pytest.fixture(scope="session")
def forger_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from assay.export.signing import new_key

    path = tmp_path_factory.mktemp("keys") / "other.pem"
    new_key(path, None)
    return path


def test_no_byte_can_be_changed_unnoticed(tmp_path):
    data, chance = RELEASE.read_bytes(), random.Random(30)
    path, passed = tmp_path / "changed.zip", []
    for _ in range(200):
        at, other = chance.randrange(len(data)), chance.randrange(1, 256)
        path.write_bytes(data[:at] + bytes([data[at] ^ other]) + data[at + 1 :])
        try:
            with Bundle(path) as found:
                work = tmp_path / "work"
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir()
                verification = Verification(found, work)
                levels_ = [verification.intact(), verification.signed()]
        except InputError:
            continue
        if all(level.state == "holds" for level in levels_):
            passed.append(at)
    assert passed == []


# What is no bundle at all.


def rewritten(path: Path, change: Callable[[zipfile.ZipFile], None]) -> Path:
    """Return a copy of a bundle to which another program has added something."""
    copy = path.with_name("changed.zip")
    shutil.copy(RELEASE, copy)
    with zipfile.ZipFile(copy, "a", zipfile.ZIP_DEFLATED) as archive:
        change(archive)
    return copy


def link(archive: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("rows/link")
    info.external_attr = 0o120777 << 16
    archive.writestr(info, "/etc/passwd")


def bomb(archive: zipfile.ZipFile) -> None:
    with archive.open("raw/bomb", "w", force_zip64=False) as file:
        for _ in range(400):
            file.write(bytes(1 << 20))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.writestr("../outside", "x"), "leads out"),
        (lambda a: a.writestr("/etc/passwd", "x"), "leads out"),
        (lambda a: a.writestr("rows/../../x", "x"), "leads out"),
        (lambda a: a.writestr("a\\b", "x"), "leads out"),
        (lambda a: a.writestr(MANIFEST, "{}"), "in it twice"),
        (link, "a link"),
        (bomb, "times its size"),
        (lambda a: a.writestr("x", "x", zipfile.ZIP_BZIP2), "compressed by a method"),
        (lambda a: setattr(a, "comment", b"hello"), "no bundle of evidence"),
    ],
)
def test_a_hostile_archive_is_refused(change, words, tmp_path):
    path = rewritten(tmp_path / "x", change)
    with pytest.raises(Damaged, match=words) as refused:
        Bundle(path)
    assert str(path) in refused.value.message


def test_ten_gigabytes_of_nothing_are_refused_at_once(tmp_path):
    path = tmp_path / "empty.zip"
    path.touch()
    os.truncate(path, 10 * 10**9)
    with pytest.raises(Damaged, match="no bundle of evidence"):
        Bundle(path)
    huge = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path.write_bytes(huge)
    with pytest.raises(Damaged, match="more than"):
        Bundle(path)


def test_an_entry_that_unpacks_to_more_than_it_says_is_refused(tmp_path):
    path = tmp_path / "liar.zip"
    with path.open("wb") as file:
        writer = BundleWriter(file)
        writer.add("rows/a.jsonl", [b"a" * 1000])
        writer.close()
    data = path.read_bytes().replace(struct.pack("<I", 1000), struct.pack("<I", 10))
    path.write_bytes(data)
    with Bundle(path, is_evidence=False) as found, pytest.raises(Damaged, match="size"):
        found.read("rows/a.jsonl")


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"schema": "assay-evidence/2", "assay": "9.9"}, "later version"),
        ({"schema": "something else"}, "not that of a bundle"),
        ({}, "not that of a bundle"),
        ({"schema": "assay-evidence/1", "assay": "1", "root": "", "leaves": [],
          "parts": {MANIFEST: {"sha256": "", "bytes": 1, "packed": ""}}}, "can say nothing"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(about, words, tmp_path):
    path = tmp_path / "x.zip"
    with path.open("wb") as file:
        writer = BundleWriter(file)
        writer.add(MANIFEST, [json.dumps(about).encode()], store=True)
        writer.close()
    with pytest.raises(InputError, match=words):
        Bundle(path)


def test_bits_that_change_nothing_in_what_is_unpacked_are_noticed(results, tmp_path):
    path = bundle(results)
    with Bundle(path) as found:
        name = "plan.json"
        packer = zlib.compressobj(1, zlib.DEFLATED, -15)
        content = found.read(name)
    forger = Forger(path)
    forger.files[name] = content
    other = packer.compress(content) + packer.flush()
    data, entry = path.read_bytes(), found.entries[name]
    begin = entry.end - entry.packed_size
    assert other != data[begin : entry.end]
    assert zlib.decompress(other, -15) == content
    # The same content, compressed in another way and with its sizes corrected.
    copy = tmp_path / "other.zip"
    with Bundle(path) as found, copy.open("wb") as file:
        writer = BundleWriter(file)
        for one in found.entries:
            if one == name:
                writer.add(one, [content], store=True)
            else:
                writer.copy(found, one)
        writer.close()
    assert states(copy)["intact"] == "differs"


# Graders of others.


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("open('/tmp/assay-evidence-was-here', 'w').write('x')", "to write"),
        ("__import__('socket').create_connection(('127.0.0.1', 9), 1)", "to connect"),
        ("__import__('subprocess').run(['true'])", "to start a program"),
        ("__import__('os').remove('/tmp/assay-nothing')", "to write"),
    ],
)
def test_a_grader_that_does_more_than_judge_is_refused(act, words, results, tmp_path):
    hostile = f"def grade(output, hint):\n    try:\n        {act}\n    except Exception:\n"
    hostile += '        pass\n    return {"pass": hint in output, "score": float(hint in output)}\n'
    path = tmp_path / "contains.py"
    path.write_text(hostile)
    from assay import plugins

    ref = plugins.grader_ref(str(path))
    version = plugins.grader(ref).version
    results.write_text(results.read_text().replace('"version": "1"', f'"version": "{version}"'))
    level = levels(bundle(results, graders=[ref]))["graded again"]
    assert level.state == "unchecked"
    assert words in "".join(level.unchecked)
    assert not Path("/tmp/assay-evidence-was-here").exists()


def test_judges_are_recorded_and_not_asked_again(results):
    from assay import plugins

    lines = [json.loads(line) for line in results.read_text().splitlines()]
    ref = plugins.grader_ref("judge:agent=claude,rubric=right?")
    for one in lines:
        one["grades"] = {"judge": one["grades"]["contains"]}
    results.write_text("".join(json.dumps(one) + "\n" for one in lines))
    level = levels(bundle(results, graders=[ref]))["graded again"]
    assert level.state == "holds"
    assert "4 judged by a model (recorded, not asked again)" in level.words


# What is withheld.


@pytest.mark.parametrize("what", ["outputs", "inputs", "raw", "outputs,inputs,raw,paths", "hint"])
def test_a_redacted_bundle_is_verified_and_tells_nothing(what, results):
    path = bundle(results, redact=what.split(","))
    found = levels(path)
    assert {level.state for level in found.values()} <= {"holds", "none"}
    with Bundle(path) as opened:
        whole = b"".join(opened.read(name) for name in opened.entries)
        about = opened.manifest.withheld
    assert about is not None
    assert about.what == what.split(",")
    if "outputs" in what:
        assert b"SECRET-LIKE" not in whole
    if "inputs" in what:
        assert b"What is 2" not in whole
    private = path.with_name("evidence.zip.private")
    assert private.stat().st_mode & 0o077 == 0


def test_the_owner_reveals_single_trials_under_the_same_root(results, assay, tmp_path):
    path = bundle(results, redact=["outputs"])
    with Bundle(path) as before:
        manifest = before.read(MANIFEST)
    done = assay("evidence", "reveal", path, "--trial", "p-2")
    assert done.code == 0, done.stderr
    with Bundle(path) as after:
        assert after.read(MANIFEST) == manifest
        whole = b"".join(after.read(name) for name in after.entries)
    assert b"42, I think" in whole
    assert b"SECRET-LIKE" not in whole
    found = levels(path)
    assert {level.state for level in found.values()} <= {"holds", "none"}
    assert found["read again"].words.startswith("1 of 4 trials, 3 withheld")
    unknown = assay("evidence", "reveal", path, "--trial", "nobody")
    assert unknown.code == 1
    assert "no trial is called 'nobody'" in unknown.stderr


def test_a_text_that_is_revealed_falsely_is_noticed(results, assay, tmp_path):
    path = bundle(results, redact=["outputs"])
    assert assay("evidence", "reveal", path, "--trial", "p-1").code == 0
    with Bundle(path) as found, path.with_suffix(".new").open("wb") as file:
        writer = BundleWriter(file)
        for name in found.entries:
            if name == "revealed/openings.json":
                writer.add(name, [found.read(name).replace(b"no idea", b"it is 42")], store=True)
            else:
                writer.copy(found, name)
        writer.close()
    path.with_suffix(".new").replace(path)
    assert states(path)["intact"] == "differs"


def test_a_secret_stops_the_command_and_nothing_is_written(results, assay):
    text = results.read_text().replace("no idea", "sk-ant-" + "a1" * 30)
    results.write_text(text)
    done = assay("evidence", "pack", results, "-o", "evidence.zip")
    assert done.code == 1
    assert "it has a secret in it" in done.stderr
    assert "results.jsonl:2" in done.stderr
    assert not results.with_name("evidence.zip").exists()
    done = assay("evidence", "pack", results, "--redact", "outputs", "-o", "evidence.zip")
    assert done.code == 0, done.stderr


def test_a_field_that_everything_rests_on_cannot_be_withheld(results, assay):
    for name in ("score", "id", "grades.contains.version", "timing"):
        done = assay("evidence", "pack", results, "--redact", name)
        assert done.code == 2, name
        assert "nothing in a bundle could be checked" in done.stderr


# Signatures.


@pytest.mark.parametrize("password", [None, "a password"])
def test_signed_and_verified_on_the_command_line(password, results, assay, tmp_path):
    env = {"ASSAY_KEY_PASSWORD": password} if password else {}
    assert assay("evidence", "new-key", "key.pem", env=env).code == 0
    assert assay("evidence", "new-key", "other.pem").code == 0
    assert (tmp_path / "key.pem").stat().st_mode & 0o077 == 0
    done = assay("evidence", "pack", results, "--sign", "key.pem", "-o", "e.zip", env=env)
    assert done.code == 0, done.stderr
    done = assay("evidence", "verify", "e.zip", "--key", "key.pub", "--json")
    assert done.code == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["exitCode"] == 0
    assert [level["name"] for level in found["levels"]] == list(LEVELS)
    assert found["levels"][1]["state"] == "holds"
    done = assay("evidence", "verify", "e.zip", "--key", "other.pub")
    assert done.code == 3
    assert "signed         DIFFERS" in done.stdout
    if password:
        done = assay("evidence", "pack", results, "--sign", "key.pem")
        assert done.code == 1
        assert "the key has a password" in done.stderr


def test_parsers_of_others_accept_the_envelope(results, tmp_path):
    """in-toto's own statement, sigstore's and securesystemslib's envelopes are the oracles."""
    from google.protobuf import json_format
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey
    from sigstore.dsse import Envelope as SigstoreEnvelope
    from sigstore.dsse import Statement as SigstoreStatement

    from assay.export.signing import new_key, read_public

    public, _ = new_key(tmp_path / "key.pem", None)
    path = bundle(results, key=tmp_path / "key.pem")
    with Bundle(path) as found:
        for name in ("attestation/test-result.json", "attestation/evaluation-result.json"):
            data = found.read(name)
            envelope = Envelope.from_dict(json.loads(data))
            key = read_public(public.read_bytes(), "key")
            assert isinstance(key, SSlibKey)
            assert list(envelope.verify([key], 1)) == [key.keyid]
            theirs = json_format.Parse(envelope.payload, statement_pb2.Statement())
            Statement.copy_from_pb(theirs).validate()
            assert theirs.subject[0].digest["sha256"]
            SigstoreStatement(envelope.payload)
            assert SigstoreEnvelope._from_json(data).signature
        payload = json.loads(envelope.payload)
    assert payload["predicate"]["merkleRoot"]
    assert payload["predicate"]["assurance"] == "self-attested"
    assert payload["predicate"]["runs"]["results"]["sampleSize"]["trials"] == 4


def test_without_the_extra_the_error_says_what_to_install(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "assay.export.signing", None)
    with pytest.raises(Exception, match="this needs") as refused:
        bundle(results, key=Path("key.pem"))
    assert "evidence" in refused.value.hint  # type: ignore[attr-defined]


# Bundles where files of rows are read.


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "{}", "{}2", "-f", "json"),
        ("query", "SELECT id, pass FROM trials", "{}"),
        ("report", "{}", "-f", "markdown", "-o", "-"),
        ("explain", "{}"),
        ("summarize", "{}"),
    ],
)
def test_commands_read_a_bundle_as_they_read_files(words, results, assay):
    path = bundle(results)
    shutil.copy(path, f"{path}2")
    done = assay(*(word.replace("{}", str(path)) for word in words))
    assert done.code == 0, done.stderr
    assert done.stdout


def test_a_damaged_bundle_is_not_read(results, assay):
    path = bundle(results)
    data = bytearray(path.read_bytes())
    data[data.index(b"rows/results.jsonl") + 30] ^= 1
    path.write_bytes(data)
    done = assay("query", "SELECT 1 FROM trials", path)
    assert done.code == 1
    assert "evidence.zip" in done.stderr


# The board.


def test_a_board_has_a_table_for_what_can_be_compared(results, assay, tmp_path):
    folder = tmp_path / "bundles"
    folder.mkdir()
    shutil.copy(bundle(results), folder / "one.zip")
    shutil.copy(RELEASE, folder / "release.zip")
    done = assay("evidence", "board", folder, "-o", "board.html")
    assert done.code == 0, done.stderr
    page = (tmp_path / "board.html").read_text()
    assert page.count("<table>") == 2
    assert "self-attested, signed by key" in page
    assert len(list((tmp_path / "board.trials").iterdir())) == 2
    assert assay("evidence", "board", folder, "--check").code == 0
    (folder / "no-bundle.zip").write_bytes(b"hello")
    done = assay("evidence", "board", folder, "--check")
    assert done.code == 3
    assert "no-bundle.zip: refused" in done.stderr


# Registered before run.


def test_the_verdict_says_whether_it_is_as_registered(assay, tmp_path):
    lines = [{"id": f"p-{n}", "input": f"What is {n} + 1?", "hint": str(n + 1)} for n in range(3)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = ["ab", "p.jsonl", "-s", "demo:flaky", "--with", "agent=demo:better", "-g", "contains"]
    done = assay(*common, "-k", "1", "--register", "-j", "2")
    assert done.code == 0, done.stderr
    assert "Registered before the first trial: plan sha256:" in done.stderr
    assert "\nas registered on 20" in done.stdout
    done = assay(*common, "-k", "1", "--margin", "0.3")
    assert "NOT as registered on" in done.stdout
    assert "the margin was 0.02, is 0.3" in done.stdout
    done = assay(*common, "-k", "1", "--register", "--fresh", "-j", "2")
    assert "\nas registered on 20" in done.stdout
    done = assay(*common, "-k", "2", "-j", "2")
    assert done.code == 0
    done = assay(*common, "-k", "2", "--register")
    assert done.code == 1
    assert "trials of this run are there already" in done.stderr


def test_the_tree_is_that_of_rfc_6962():
    # The example of the RFC's reference implementation: leaves are hashed already here.
    leaves = [f"{n:064x}" for n in range(5)]
    import hashlib

    def node(one: str, other: str) -> str:
        return hashlib.sha256(b"\1" + bytes.fromhex(one) + bytes.fromhex(other)).hexdigest()

    four = node(node(leaves[0], leaves[1]), node(leaves[2], leaves[3]))
    assert tree_root(leaves) == node(four, leaves[4])
    assert tree_root(leaves[:3]) == node(node(leaves[0], leaves[1]), leaves[2])


def test_verify_runs_without_network_and_cannot_write(results, assay, tmp_path, monkeypatch):
    """An executable grader, which no audit hook watches, is kept from both by the sandbox."""
    grader = tmp_path / "contains"
    grader.write_text(
        "#!/bin/sh\n"
        f"touch {tmp_path}/was-here 2>/dev/null && touch /var/tmp/was-here-{os.getpid()}\n"
        "(exec 3<>/dev/tcp/127.0.0.1/9) 2>/dev/null\n"
        'printf \'{"pass": true, "score": 1}\'\n'
    )
    grader.chmod(0o755)
    done = assay("evidence", "pack", results, "-g", grader, "-o", "e.zip")
    assert done.code == 0, done.stderr
    assay("evidence", "verify", "e.zip")
    assert not (tmp_path / "was-here").exists()
