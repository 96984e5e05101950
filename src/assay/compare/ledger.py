"""The ledger of an experiment: every earlier look at the same question.

Somebody who edits a skill twenty times and looks after each edit sees it help once, even if no edit
does anything. So from the second edit against one control on, a difference is only promising. It is
confirmed by a run that is made for this purpose alone: both arms anew, on prompts held back for it
where there are some.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.records.experiment import RESOLVED, VERDICT, Arm, EditLook, Standing
from assay.records.files import read_kept, short_hash
from assay.records.rows import UNREADABLE
from assay.records.signatures import Signatures

_FULL = float(1 << 64)
_HELPS = ("better", "promising", "confirmed")
_OF_CONTROL = (
    *("agent", "simple", "shell", "model", "template"),
    *("skills", "instructions", "mcp", "agent_args"),
)
"""What makes it another control; limits do not."""


class _Pair(msgspec.Struct, rename="camel"):
    run_b: str
    pass_rate: dict[str, Any]


class _Verdict(msgspec.Struct, rename="camel"):
    ended: str
    valid: bool
    verdicts: dict[str, str]
    inputs: dict[str, str]
    pairs: list[_Pair]
    decisions: dict[str, dict[str, Any]] = {}
    confirm: bool = False
    made_of: dict[str, Any] = {}


class _ResolvedArm(msgspec.Struct):
    setup: Arm


class _ResolvedFile(msgspec.Struct):
    experiment: dict[str, Any]
    arms: dict[str, _ResolvedArm]


class _Proof(msgspec.Struct):
    words: list[str] = []


class _VerdictFile(msgspec.Struct):
    verdicts: dict[str, str]
    sentences: list[str]
    proof: _Proof


class ArmVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment has found about one of its arms."""

    arm: str
    code: str
    words: str
    """How the arms differ, what was reused, and the verdict; a line each."""


def arm_verdict(rows: Path) -> ArmVerdict | None:
    """Return the verdict about the arm that these rows are of; None if they are of none."""
    try:
        found = msgspec.json.decode(rows.with_name(VERDICT).read_bytes(), type=_VerdictFile)
    except (OSError, *UNREADABLE):
        return None
    code = found.verdicts.get(rows.stem)
    words = "\n".join([*found.proof.words, *found.sentences])
    return None if code is None else ArmVerdict(arm=rows.stem, code=code, words=words)


def is_held_back(prompt_id: str, share: float) -> bool:
    """Whether a prompt is kept for confirmations; the same for ever, whatever other prompts do."""
    digest = hashlib.sha256(f"holdout {prompt_id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) / _FULL < share


def edit_of(control: Arm, arm: Arm, inputs: Mapping[str, str]) -> str:
    """Return a digest of what an arm has and the control has not, with the files that it names."""
    named = [*arm.skills, *(path for path in (arm.template, arm.instructions, arm.mcp) if path)]
    apart = {path: inputs.get(str(Path(path)), "") for path in named}
    both = msgspec.to_builtins(control), msgspec.to_builtins(arm)
    own = {key: value for key, value in both[1].items() if both[0].get(key) != value}
    return short_hash(msgspec.json.encode((own, apart), order="deterministic"))


def question_of(made_of: Mapping[str, Any]) -> str:
    """Return a digest of what a verdict asks: the prompts, and who judges the answers.

    Whoever leaves out prompts that failed, or takes another grader, asks something else of the same
    trials.
    """
    graders = {str(arm.get("graders")) for arm in made_of.get("arms", {}).values()}
    parts = (made_of.get("prompts"), sorted(graders))
    return short_hash(msgspec.json.encode(parts, order="deterministic"))


def read_looks(
    folder: Path, control: Arm, arm: str, others: Collection[str] = (), question: str = ""
) -> list[EditLook]:
    """Return every verdict about an arm against this control, oldest first.

    folder is that of the experiment, others are its other arms. Verdicts about arms that it has no
    more are about earlier names of this one. So are those of other experiments that put the same
    question: whoever keeps each version in a folder of its own has looked as often.
    """
    found: list[EditLook] = []
    for path in folder.glob(f"*/{VERDICT}"):
        found += _looks(path.parent, control, arm, others)
    for path in folder.parent.glob(f"*/*/{VERDICT}") if question else ():
        if path.parent.parent != folder:
            looks = _looks(path.parent, control, "", ())
            found += [look for look in looks if look.question == question]
    return sorted(found, key=lambda look: (look.ended, look.run))


def looks_before(looks: Sequence[EditLook], run: str) -> list[EditLook]:
    """Return the looks that came before that of a run, all if it has had none yet."""
    names = [look.run for look in looks]
    return list(looks[: names.index(run)] if run in names else looks)


def chains(folder: Path) -> dict[str, list[EditLook]]:
    """Return the looks at each arm of an experiment against the control of its newest run."""
    newest: tuple[str, _ResolvedFile] | None = None
    for path in folder.glob(f"*/{VERDICT}"):
        try:
            ended = msgspec.json.decode(read_kept(path), type=_Verdict).ended
            resolved = msgspec.json.decode(read_kept(path.with_name(RESOLVED)), type=_ResolvedFile)
        except (OSError, *UNREADABLE):
            continue
        if newest is None or ended > newest[0]:
            newest = ended, resolved
    if newest is None:
        return {}
    arms, control = newest[1].arms, newest[1].experiment.get("control", "")
    if control not in arms:
        return {}
    found = {name: read_looks(folder, arms[control].setup, name, arms) for name in arms}
    return {name: looks for name, looks in found.items() if looks and name != control}


def _looks(run: Path, control: Arm, wanted: str, others: Collection[str]) -> Iterator[EditLook]:
    try:
        data, signatures = read_kept(run / VERDICT), Signatures.read(run)
        verdict = msgspec.json.decode(data, type=_Verdict)
        resolved = msgspec.json.decode(read_kept(run / RESOLVED), type=_ResolvedFile)
    except (OSError, *UNREADABLE):
        return
    first = resolved.experiment.get("control", "")
    names = [wanted] if wanted in resolved.arms else [n for n in resolved.arms if n not in others]
    names = [name for name in names if name != first]
    if not verdict.valid or not names or first not in resolved.arms:
        return
    if any(getattr(resolved.arms[first].setup, f) != getattr(control, f) for f in _OF_CONTROL):
        return
    for name in names if not wanted else names[:1]:
        rate = next((pair.pass_rate for pair in verdict.pairs if pair.run_b == name), {})
        seen = (verdict.decisions.get(name) or {}).get("interval") or rate.get("interval")
        yield EditLook(
            run=run.name,
            ended=verdict.ended,
            edit=edit_of(control, resolved.arms[name].setup, verdict.inputs),
            code=verdict.verdicts.get(name, ""),
            difference=rate.get("difference"),
            low=seen["low"] if seen else None,
            high=seen["high"] if seen else None,
            # What anybody could have written is a look like any other, and confirms nothing.
            is_confirmation=verdict.confirm and bool(signatures and signatures.holds(data)),
            question=question_of(verdict.made_of),
        )


def standing(
    looks: Sequence[EditLook],
    edit: str,
    *,
    question: str = "",
    run: str = "",
    continued: Collection[str] = (),
    is_confirmation: bool = False,
) -> Standing:
    """Say where the verdict of a run about this edit stands among the others.

    continued names the runs whose trials are part of this one, where it may look at any time: more
    trials of the same version, put the same question, go on with the same look. Anything else is
    another, also a plan that was made longer after its end did not please.
    """
    before = looks_before(looks, run)
    mine = [look for look in before if look.edit == edit]
    tries = [
        look
        for look in before
        if not look.is_confirmation
        and (look.edit != edit or look.run not in continued or look.question != question)
    ]
    tried = list(dict.fromkeys(look.edit for look in before if not look.is_confirmation))
    failed = [look for look in before if look.is_confirmation and look.code not in _HELPS]
    # A confirmation may have come after the first verdict of this run.
    confirmed = [look for look in looks if look.edit == edit and look.is_confirmation]
    is_known = confirmed and all(look.code == "confirmed" for look in confirmed)
    return Standing(
        edit=tried.index(edit) + 1 if edit in tried else len(tried) + 1,
        looks=before,
        is_confirmation=is_confirmation,
        n_tries=len(tries),
        n_failed=sum(look.edit == edit for look in failed),
        n_refuted=len({look.edit for look in failed} - {edit}),
        was_shown=any(look.code in _HELPS for look in mine),
        confirmed=confirmed[-1].ended if is_known else None,
    )
