"""What a bundle attests, and who signs it: in-toto statements in DSSE envelopes.

`securesystemslib` signs and verifies (the extra `evidence`), `sigstore` without keys (`keyless`).
Without a signature the statements stand in the bundle all the same, in envelopes that nobody
signed.
"""

import base64
import binascii
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import msgspec

from assay.errors import InputError
from assay.export.optional import of_extra, signing
from assay.records.bundle import ATTESTATION, MANIFEST, RESULTS, Manifest
from assay.records.rows import UNREADABLE, explain

STATEMENT = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
EVALUATION = "urn:assay:attestation:evaluation-result:v0.1"
PAYLOAD = "application/vnd.in-toto+json"
SUBJECT = MANIFEST
FILES = {
    TEST_RESULT: f"{ATTESTATION}test-result.json",
    EVALUATION: f"{ATTESTATION}evaluation-result.json",
}
SIGSTORE = f"{ATTESTATION}evaluation-result.sigstore.json"
PASSES = ("better", "confirmed", "promising", "same", "not-worse")
"""Decisions after which a treatment is no loss."""


class Signature(msgspec.Struct, frozen=True):
    sig: str
    keyid: str = ""


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """A DSSE envelope as it stands on disk."""

    payload: str
    payload_type: str
    signatures: list[Signature] = []

    @property
    def statement(self) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(base64.b64decode(self.payload, validate=True))
        except (binascii.Error, ValueError, *UNREADABLE):
            return {}
        return found if isinstance(found, dict) else {}


def statements(
    manifest: Manifest, digest: str, plan: Mapping[str, Any], results: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return what is attested about a bundle, by the type of the predicate."""
    subject = [{"name": SUBJECT, "digest": {"sha256": digest}}]
    predicates = {
        TEST_RESULT: _test_result(manifest, plan, results),
        EVALUATION: evaluation(manifest, plan, results),
    }
    return {
        kind: {"_type": STATEMENT, "subject": subject, "predicateType": kind, "predicate": one}
        for kind, one in predicates.items()
    }


def _test_result(
    manifest: Manifest, plan: Mapping[str, Any], results: Mapping[str, Any]
) -> dict[str, Any]:
    tests = _tests(results)
    failed = [name for name, passed in tests if not passed]
    configuration = {"name": "prompts", "digest": {"sha256": str(plan.get("promptsDigest"))}}
    kept = manifest.parts[RESULTS]
    return {
        "result": "FAILED" if failed else "PASSED",
        "configuration": [
            configuration,
            {"name": RESULTS, "digest": {"sha256": kept.sha256}},
        ],
        "passedTests": [name for name, passed in tests if passed],
        "warnedTests": [],
        "failedTests": failed,
    }


def _tests(results: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return what was tested: each treatment against the control or, of one run, its trials."""
    verdicts = results.get("verdicts") or {}
    if verdicts:
        first = next(iter(results["runs"]))
        return [
            (f"{name} against {first}", bool(one["healthy"]) and one["code"] in PASSES)
            for name, one in verdicts.items()
        ]
    return [
        (f"all trials of {name} pass", 0 < one["measured"] == one["passed"])
        for name, one in results["runs"].items()
    ]


def evaluation(
    manifest: Manifest, plan: Mapping[str, Any], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the evaluation result: what was measured, how surely, and what follows."""
    comparisons = [
        {
            "run": pair["runB"],
            "against": pair["runA"],
            "metric": "pass rate, B minus A",
            "comparator": "differs from 0 by",
            "threshold": results["margin"],
            "difference": pair["passRate"].get("difference"),
            "interval": pair["passRate"].get("interval"),
            "pValue": pair["passRate"].get("pValue"),
            "decision": results["verdicts"][pair["runB"]]["code"],
        }
        for pair in results.get("pairs", ())
    ]
    runs = {
        name: {
            "metric": "pass rate",
            "value": one["rate"],
            "interval": one["interval"],
            "sampleSize": {key: one[key] for key in ("prompts", "trials", "measured")},
            "agents": one["agents"],
        }
        for name, one in results["runs"].items()
    }
    said = {
        "merkleRoot": manifest.root,
        "assurance": plan.get("assurance", "self-attested"),
        "runs": runs,
        "comparisons": comparisons,
        "promptsDigest": plan.get("promptsDigest"),
        "gradersDigest": plan.get("gradersDigest"),
        "registered": (plan.get("registration") or {}).get("registered"),
        "withheld": manifest.withheld.what if manifest.withheld else [],
        "evaluator": {"name": "assay", "version": manifest.assay},
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(said))
    return plain


def envelope(statement: Mapping[str, Any], signer: Any = None) -> bytes:
    """Put a statement into an envelope, signed if there is a signer."""
    payload = msgspec.json.encode(statement, order="deterministic")
    if signer is None:
        made = Envelope(base64.b64encode(payload).decode(), PAYLOAD)
        return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
    signed = signing().signed_envelope(payload, PAYLOAD, signer)
    return msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n"


def decode_envelope(data: bytes, place: str) -> Envelope:
    """Read an envelope; its signatures are not checked."""
    try:
        return msgspec.json.decode(data, type=Envelope)
    except UNREADABLE as error:
        msg = f"{place}: {explain(error, Envelope)}"
        raise InputError(msg) from error


def keyless() -> ModuleType:
    """Return the module that signs by an identity, which needs an extra."""
    return of_extra("assay.evidence.keyless", "keyless")
