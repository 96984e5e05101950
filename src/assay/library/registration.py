"""What was planned before the first trial of an experiment: `assay ab --register`.

Whoever runs something twice and keeps what pleases breaks no digest. A plan that was written down,
signed and made known before the first trial can be held against what was shown afterwards.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import PluginError
from assay.export.optional import signing
from assay.pipeline.made_of import DEFAULT_K, MadeOf, changes
from assay.records.experiment import REGISTERED, VERDICT, Experiment
from assay.records.files import read_kept
from assay.records.rows import UNREADABLE
from assay.records.signatures import Signatures, key_path

PAYLOAD = "application/vnd.assay.registration+json"
KEY = "evidence-key.pem"
"""The key of this user, which is made when it is needed first."""
_RULES = {
    "control": "the control",
    "k": "trials of a prompt",
    "until": "the stop rule",
    "budget": "the budget",
    "effect": "the effect to find",
    "margin": "the margin",
    "seed": "the seed",
    "holdout": "the share held back",
    "confirm": "whether it confirms",
}


class Registration(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """registered.json"""

    registered: str
    """When, before the first trial."""
    digest: str
    plan: dict[str, Any]
    key: str = ""
    """Fingerprint of the key that signed it."""
    public_key: str = ""
    """The public half of the key, in PEM."""
    envelope: dict[str, Any] | None = None
    """The same, signed: a DSSE envelope."""


class Held(msgspec.Struct, kw_only=True, frozen=True):
    """A registration, held against what was run."""

    registered: str
    digest: str
    changed: list[str]
    """What is not as it was registered."""
    words: str


def plan_of(experiment: Experiment, made_of: MadeOf, *, confirm: bool) -> dict[str, Any]:
    """Return all that decides what a verdict says: prompts, arms, graders, and how it is judged."""
    found: dict[str, Any] = {
        "name": experiment.name,
        "control": experiment.control,
        "k": experiment.k or DEFAULT_K,
        "until": "decided" if experiment.is_sequential else "k",
        "budget": experiment.budget,
        "effect": experiment.effect if experiment.is_sequential else None,
        "margin": experiment.margin,
        "seed": experiment.seed,
        "holdout": experiment.holdout or None,
        "confirm": confirm,
        "setups": {name: experiment.resolved(name) for name in experiment.arms},
        "madeOf": made_of,
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return plain


def digest_of(plan: Mapping[str, Any]) -> str:
    """Return the digest of a plan, which can be made known before anything is run."""
    return hashlib.sha256(msgspec.json.encode(plan, order="deterministic")).hexdigest()


def new_registration(plan: dict[str, Any], now: str) -> Registration:
    """Sign a plan, with the key of this user where that can be done."""
    made = Registration(registered=now, digest=digest_of(plan), plan=plan)
    try:
        module = signing()
    except PluginError:
        return made
    path = key_path(KEY)
    if not path.exists():
        module.new_key(path, None)
    signer = module.read_signer(path)
    payload = msgspec.json.encode({"registered": now, "plan": plan}, order="deterministic")
    envelope = module.signed_envelope(payload, PAYLOAD, signer)
    key = module.fingerprint(signer.public_key)
    pem = module.public_pem(signer.public_key).decode()
    return msgspec.structs.replace(made, key=key, public_key=pem, envelope=envelope)


def read_registration(folder: Path) -> tuple[Registration | None, bool]:
    """Return what was registered for a run, and whether Assay wrote it there."""
    try:
        data = read_kept(folder / REGISTERED)
        found = msgspec.json.decode(data, type=Registration)
    except (OSError, *UNREADABLE):
        return None, True
    signatures = Signatures.read(folder)
    return found, signatures is None or signatures.holds(data)


def held_against(folder: Path, plan: Mapping[str, Any]) -> Held | None:
    """Compare a plan with what was registered for its run or, without a registration of its own,
    for the run that was registered last and has no verdict yet."""
    found, is_ours = read_registration(folder)
    if found is None:
        waiting = [
            one
            for path in folder.parent.glob(f"*/{REGISTERED}")
            if not path.with_name(VERDICT).exists() and (one := read_registration(path.parent)[0])
        ]
        found = max(waiting, key=lambda one: one.registered, default=None)
    return None if found is None else held(found, plan, is_ours=is_ours)


def held(found: Registration, plan: Mapping[str, Any], *, is_ours: bool = True) -> Held:
    """Say whether a plan is as it was registered, or what has changed."""
    is_whole = digest_of(found.plan) == found.digest and is_ours
    changed = [] if is_whole else ["the registration itself"]
    changed += changes_of(found.plan, plan)
    day = found.registered[:10]
    words = f"as registered on {day} (plan {found.digest[:12]})"
    if changed:
        words = f"NOT as registered on {day} (plan {found.digest[:12]}): {'; '.join(changed)}"
    return Held(registered=found.registered, digest=found.digest, changed=changed, words=words)


def changes_of(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Say in words how a plan differs from what was registered."""
    for name, words in _RULES.items():
        if old.get(name) != new.get(name):
            yield f"{words} was {_shown(old.get(name))}, is {_shown(new.get(name))}"
    made = [msgspec.convert(plan.get("madeOf") or {}, MadeOf) for plan in (old, new)]
    yield from changes(*made)


def _shown(value: Any) -> str:
    return "not set" if value is None else msgspec.json.encode(value).decode().strip('"')
