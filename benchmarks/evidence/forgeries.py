"""Forge bundles of evidence, as somebody would who knows how they are made.

A forger corrects everything that can be computed: digests, the tree, results, the attestation. What
is refused then is refused because of what the rows, the streams and the graders say.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from assay.evidence import attest
from assay.evidence.regrade import graded_again
from assay.evidence.results import Verdict, compute
from assay.evidence.verify import GRADED, LEVELS, PUBLIC_KEY, Level, Verification, guarded
from assay.export.optional import signing
from assay.records.bundle import (
    MANIFEST,
    PLAN,
    PROMPTS,
    RESULTS,
    Bundle,
    BundleWriter,
    Damaged,
    Leaf,
    Manifest,
    StreamPart,
    leaf_digest,
    tree_root,
    trials_of_line,
)
from assay.stats.passk import pass_numbers

type Row = dict[str, Any]


def levels(path: Path, keys: tuple[Path, ...] = (), only: str = "") -> dict[str, Level]:
    """Verify a bundle in this process: quicker than the command, and without its sandbox."""
    public = [key.read_bytes() for key in keys]
    try:
        with tempfile.TemporaryDirectory() as folder, Bundle(path) as bundle:
            found = Verification(bundle, Path(folder), public)
            if only and only != GRADED:
                step = getattr(found, only.replace(" ", "_"))
                return {only: guarded(only, step)}
            own = {} if only else {level.name: level for level in found.report().levels}
            with tempfile.TemporaryDirectory() as other:
                again = Verification(bundle, Path(other), public)
                own[GRADED] = guarded(GRADED, lambda: graded_again(again))
    except Damaged as error:
        return {"intact": Level.of("intact", "", [error.message])}
    return {name: own[name] for name in LEVELS if name in own}


class Forger:
    """A bundle that is taken apart, changed and put together again."""

    def __init__(self, bundle: Path) -> None:
        with Bundle(bundle) as found:
            self.files = {name: found.read(name) for name in found.entries}
            self.manifest = found.manifest
            self.order = [*found.entries]

    def json(self, name: str) -> Any:
        return json.loads(self.files[name])

    def put(self, name: str, value: Any) -> None:
        data = msgspec.json.encode(value, order="deterministic")
        self.files[name] = msgspec.json.format(data, indent=1) + b"\n"

    def rows(self, run: str) -> list[Row]:
        return [json.loads(line) for line in self.files[f"rows/{run}.jsonl"].splitlines()]

    def put_rows(self, run: str, rows: list[Row]) -> None:
        self.files[f"rows/{run}.jsonl"] = b"".join(msgspec.json.encode(r) + b"\n" for r in rows)

    def streams(self, run: str, id_: str, trial: int) -> list[str]:
        """Return the names of a trial's raw streams in the archive."""
        return [
            one.part
            for leaf in self.manifest.leaves
            if (leaf.run, leaf.id, leaf.trial) == (run, id_, trial)
            for one in leaf.streams
        ]

    def write(
        self,
        path: Path,
        *,
        manifest: bool = True,
        results: bool = True,
        attested: bool = True,
        key: Path | None = None,
    ) -> Path:
        """Write the bundle, with its manifest, results and attestation computed again."""
        if results:
            self._compute()
        with path.open("wb") as file:
            writer = BundleWriter(file)
            parts = {}
            for name in self.order:
                if name in self.files and name != MANIFEST and not name.startswith("attestation/"):
                    parts[name] = writer.add(name, [self.files[name]])
            for name in self.files.keys() - {*self.order}:
                parts[name] = writer.add(name, [self.files[name]])
            made = self._manifest(parts) if manifest else self.manifest
            data = made.encode()
            writer.add(MANIFEST, [data], store=True)
            self._attest(writer, made, data, key, afresh=attested)
            writer.close()
        return path

    def _compute(self) -> None:
        plan, kept = self.json(PLAN), self.json(RESULTS)
        with tempfile.TemporaryDirectory() as folder:
            named = []
            for run in plan["runs"]:
                place = Path(folder, run["label"], run["file"])
                place.parent.mkdir()
                place.write_bytes(self.files[run["rows"]])
                named.append((run["label"], place))
            name = "experiment/verdict.json"
            verdict = msgspec.convert(self.json(name), Verdict) if name in self.files else None
            found = compute(named, margin=kept["margin"], seed=kept["seed"], verdict=verdict)
        self.put(RESULTS, found)
        trials: dict[str, dict[str, int]] = {}
        for run in plan["runs"]:
            counts = trials.setdefault(run["label"], {})
            for row in self.rows(run["label"]):
                counts[row["id"]] = counts.get(row["id"], 0) + len(row.get("trials") or [row])
        plan["trials"] = {name: dict(sorted(counts.items())) for name, counts in trials.items()}
        if verdict is not None:
            about = self.json("experiment/verdict.json")
            about["pairs"] = found["pairs"]
            about["verdicts"] = {k: v["code"] for k, v in found["verdicts"].items()}
            about["sentences"] = [v["words"] for v in found["verdicts"].values()]
            self.put("experiment/verdict.json", about)
        self.put(PLAN, plan)

    def _manifest(self, parts: dict[str, Any]) -> Manifest:
        streams = {(leaf.run, leaf.id, leaf.trial): leaf.streams for leaf in self.manifest.leaves}
        leaves: list[Leaf] = []
        for run in self.json(PLAN)["runs"]:
            for line in self.files[run["rows"]].splitlines():
                for trial in trials_of_line(line):
                    own = streams.get((run["label"], trial.id, trial.number), [])
                    again = [self._stream(one, parts) for one in own if one.part in parts]
                    named = [(one.name, one.digest) for one in again]
                    digest = leaf_digest(run["label"], trial, named)
                    leaves.append(
                        Leaf(run=run["label"], id=trial.id, trial=trial.number, digest=digest,
                             streams=again)
                    )  # fmt: skip
        for name in [name for name in parts if name.startswith("raw/")]:
            del parts[name]
        return Manifest(
            schema=self.manifest.schema,
            assay=self.manifest.assay,
            root=tree_root([leaf.digest for leaf in leaves]),
            parts=dict(sorted(parts.items())),
            leaves=leaves,
            withheld=self.manifest.withheld,
        )

    @staticmethod
    def _stream(one: StreamPart, parts: dict[str, Any]) -> StreamPart:
        part = parts[one.part]
        return StreamPart(name=one.name, digest=part.sha256, part=one.part, packed=part.packed)

    def _attest(
        self, writer: BundleWriter, made: Manifest, data: bytes, key: Path | None, *, afresh: bool
    ) -> None:
        if not afresh:
            for name in (*attest.FILES.values(), PUBLIC_KEY):
                if name in self.files:
                    writer.add(name, [self.files[name]], store=True)
            return
        digest = hashlib.sha256(data).hexdigest()
        said = attest.statements(made, digest, self.json(PLAN), self.json(RESULTS))
        signer = signing().read_signer(key) if key else None
        for kind, name in attest.FILES.items():
            writer.add(name, [attest.envelope(said[kind], signer)], store=True)
        if signer is not None:
            writer.add(PUBLIC_KEY, [signing().public_pem(signer.public_key)], store=True)


def failed(forger: Forger, run: str) -> tuple[list[Row], Row, Row]:
    """Return the rows of a run, one with a failed trial, and that trial."""
    rows = forger.rows(run)
    for row in rows:
        for entry in row["trials"]:
            if entry.get("pass") is False:
                return rows, row, entry
    msg = f"{run} has no failed trial"
    raise ValueError(msg)


def pass_it(entry: Row) -> None:
    """Let a trial pass, in all fields that say so."""
    entry |= {"pass": True, "score": 1.0, "reasoning": "all found"}
    for grade in entry.get("grades", {}).values():
        grade |= {"pass": True, "score": 1.0, "reasoning": "all found"}


def count_again(row: Row) -> None:
    """Let a row say what follows from its trials."""
    numbers = pass_numbers(one.get("pass", msgspec.UNSET) for one in row["trials"])
    plain = json.loads(msgspec.json.encode(numbers))
    for name, value in plain.items():
        first, *rest = name.split("_")
        row[first + "".join(map(str.title, rest))] = value


type Forgery = Callable[[Forger, Path, Path], Path]
FORGERIES: dict[str, tuple[str, Forgery]] = {}
"""By name: the level that should refuse it, and how it is made from a bundle, with a key of the
forger's, at a path. The experiment's first arm is control, the other one treatment."""


def forgery(level: str) -> Callable[[Forgery], Forgery]:
    def note(function: Forgery) -> Forgery:
        FORGERIES[function.__name__.replace("_", " ")] = level, function
        return function

    return note


@forgery("intact")
def row_edited_and_nothing_else(it: Forger, path: Path, key: Path) -> Path:
    rows, _, entry = failed(it, "control")
    pass_it(entry)
    it.put_rows("control", rows)
    return it.write(path, manifest=False, results=False, attested=False)


@forgery("computed again")
def prompt_dropped(it: Forger, path: Path, key: Path) -> Path:
    rows, row, _ = failed(it, "control")
    it.put_rows("control", [one for one in rows if one is not row])
    return it.write(path)


@forgery("computed again")
def trial_dropped(it: Forger, path: Path, key: Path) -> Path:
    rows, row, entry = failed(it, "control")
    row["trials"].remove(entry)
    count_again(row)
    it.put_rows("control", rows)
    return it.write(path)


@forgery("intact")
def trial_doubled(it: Forger, path: Path, key: Path) -> Path:
    rows = it.rows("treatment")
    rows[0]["trials"].append(rows[0]["trials"][0])
    count_again(rows[0])
    it.put_rows("treatment", rows)
    return it.write(path)


@forgery("computed again")
def trial_doubled_under_another_number(it: Forger, path: Path, key: Path) -> Path:
    rows = it.rows("treatment")
    rows[0]["trials"].append({**rows[0]["trials"][0], "trialNum": 9})
    count_again(rows[0])
    it.put_rows("treatment", rows)
    return it.write(path)


@forgery("intact")
def row_doubled(it: Forger, path: Path, key: Path) -> Path:
    rows = it.rows("treatment")
    it.put_rows("treatment", [*rows, rows[0]])
    return it.write(path)


@forgery("computed again")
def arms_swapped(it: Forger, path: Path, key: Path) -> Path:
    one, other = "rows/control.jsonl", "rows/treatment.jsonl"
    it.files[one], it.files[other] = it.files[other], it.files[one]
    for leaf in [leaf for leaf in it.manifest.leaves if leaf.run == "control"]:
        theirs = it.streams("treatment", leaf.id, leaf.trial)
        for mine, name in zip(it.streams("control", leaf.id, leaf.trial), theirs, strict=True):
            it.files[mine], it.files[name] = it.files[name], it.files[mine]
    return it.write(path)


@forgery("graded again")
def grade_edited(it: Forger, path: Path, key: Path) -> Path:
    rows, row, entry = failed(it, "treatment" if has_failed(it, "treatment") else "control")
    pass_it(entry)
    count_again(row)
    it.put_rows("control", rows)
    return it.write(path)


@forgery("graded again")
def verdict_edited_and_grades_left(it: Forger, path: Path, key: Path) -> Path:
    rows, row, entry = failed(it, "control")
    entry |= {"pass": True, "score": 1.0}
    count_again(row)
    it.put_rows("control", rows)
    return it.write(path)


@forgery("computed again")
def pass_rate_of_a_row_edited(it: Forger, path: Path, key: Path) -> Path:
    rows = it.rows("control")
    rows[0]["passAtK"] = 0.123
    it.put_rows("control", rows)
    return it.write(path)


def has_failed(it: Forger, run: str) -> bool:
    return any(one.get("pass") is False for row in it.rows(run) for one in row["trials"])


def answer_right(row: Row, entry: Row) -> str:
    """Let a trial have answered what its grader looks for."""
    before, entry["output"] = entry["output"], row["hint"]
    entry["trajectory"][-1]["content"] = row["hint"]
    pass_it(entry)
    count_again(row)
    return str(before)


@forgery("read again")
def output_edited(it: Forger, path: Path, key: Path) -> Path:
    rows, row, entry = failed(it, "control")
    answer_right(row, entry)
    it.put_rows("control", rows)
    return it.write(path)


@forgery("read again")
def raw_stream_edited(it: Forger, path: Path, key: Path) -> Path:
    _, row, entry = failed(it, "control")
    (name, *_) = it.streams("control", row["id"], entry["trialNum"])
    it.files[name] = it.files[name].replace(entry["output"].encode(), b"something else")
    return it.write(path)


def whole_trial(it: Forger) -> None:
    """Edit row and raw stream together, so that everything fits."""
    rows, row, entry = failed(it, "control")
    (name, *_) = it.streams("control", row["id"], entry["trialNum"])
    before = answer_right(row, entry)
    it.files[name] = it.files[name].replace(before.encode(), row["hint"].encode())
    it.put_rows("control", rows)


@forgery("signed")
def row_and_stream_edited_signed_by_another_key(it: Forger, path: Path, key: Path) -> Path:
    whole_trial(it)
    return it.write(path, key=key)


@forgery("signed")
def row_and_stream_edited_unsigned(it: Forger, path: Path, key: Path) -> Path:
    whole_trial(it)
    return it.write(path)


@forgery("intact")
def row_and_stream_edited_with_the_old_signature(it: Forger, path: Path, key: Path) -> Path:
    whole_trial(it)
    return it.write(path, attested=False)


@forgery("graded again")
def grader_replaced(it: Forger, path: Path, key: Path) -> Path:
    (name,) = [one for one in it.files if one.startswith("graders/")]
    it.files[name] = b"def grade(output):\n    return True\n"
    return it.write(path)


@forgery("graded again")
def grader_replaced_with_its_version(it: Forger, path: Path, key: Path) -> Path:
    (name,) = [one for one in it.files if one.startswith("graders/")]
    it.files[name] = b"def grade(output):\n    return True\n"
    about = it.json("graders.json")
    about["graders"][0]["version"] = hashlib.sha256(it.files[name]).hexdigest()[:12]
    it.put("graders.json", about)
    return it.write(path)


@forgery("computed again")
def margin_changed(it: Forger, path: Path, key: Path) -> Path:
    it.put(RESULTS, it.json(RESULTS) | {"margin": 0.4})
    return it.write(path, results=False)


@forgery("computed again")
def margin_of_a_registered_plan_changed(it: Forger, path: Path, key: Path) -> Path:
    about = it.json("experiment/resolved.json")
    about["experiment"]["margin"] = 0.4
    it.put("experiment/resolved.json", about)
    it.put(RESULTS, it.json(RESULTS) | {"margin": 0.4})
    return it.write(path)


@forgery("computed again")
def registration_changed(it: Forger, path: Path, key: Path) -> Path:
    margin_of_a_registered_plan_changed(it, path, key)
    about = it.json("experiment/registered.json")
    about["plan"]["margin"] = 0.4
    plan = msgspec.json.encode(about["plan"], order="deterministic")
    about["digest"] = hashlib.sha256(plan).hexdigest()
    it.put("experiment/registered.json", about)
    verdict = it.json("experiment/verdict.json")
    words = f"as registered on {about['registered'][:10]} (plan {about['digest'][:12]})"
    verdict["registration"] |= {"digest": about["digest"], "changed": [], "words": words}
    it.put("experiment/verdict.json", verdict)
    return it.write(path)


@forgery("computed again")
def registration_dropped(it: Forger, path: Path, key: Path) -> Path:
    del it.files["experiment/registered.json"]
    return it.write(path)


@forgery("computed again")
def seed_changed(it: Forger, path: Path, key: Path) -> Path:
    it.put(RESULTS, it.json(RESULTS) | {"seed": 1})
    return it.write(path, results=False)


@forgery("computed again")
def rate_edited(it: Forger, path: Path, key: Path) -> Path:
    results = it.json(RESULTS)
    results["runs"]["treatment"]["rate"] = 0.99
    it.put(RESULTS, results)
    return it.write(path, results=False)


@forgery("computed again")
def p_value_edited(it: Forger, path: Path, key: Path) -> Path:
    verdict = it.json("experiment/verdict.json")
    verdict["pairs"][0]["passRate"]["pValue"] = 1e-9
    it.put("experiment/verdict.json", verdict)
    return it.write(path, results=False)


@forgery("computed again")
def sentence_edited(it: Forger, path: Path, key: Path) -> Path:
    verdict = it.json("experiment/verdict.json")
    verdict["sentences"] = ["treatment helps: 0 % → 100 % of trials pass"]
    it.put("experiment/verdict.json", verdict)
    return it.write(path, results=False)


@forgery("computed again")
def decision_edited(it: Forger, path: Path, key: Path) -> Path:
    verdict = it.json("experiment/verdict.json")
    verdict["verdicts"] = {"treatment": "confirmed"}
    it.put("experiment/verdict.json", verdict)
    return it.write(path, results=False)


@forgery("signed")
def signature_stripped(it: Forger, path: Path, key: Path) -> Path:
    return it.write(path, results=False)


@forgery("signed")
def signed_by_another_key(it: Forger, path: Path, key: Path) -> Path:
    return it.write(path, results=False, key=key)


@forgery("computed again")
def attestation_edited(it: Forger, path: Path, key: Path) -> Path:
    results = it.json(RESULTS)
    results["verdicts"]["treatment"]["code"] = "confirmed"
    kept = it.files[RESULTS]
    it.put(RESULTS, results)
    it.write(path, results=False)  # the attestation is that of the edited results
    with Bundle(path) as bundle:
        names = [*attest.FILES.values()]
        edited = {name: bundle.read(name) for name in names}
    it.files[RESULTS] = kept
    it.write(path, results=False)
    with Bundle(path) as bundle:
        digest = hashlib.sha256(bundle.read(MANIFEST)).hexdigest()
    for name, data in edited.items():
        statement = attest.decode_envelope(data, name).statement
        statement["subject"][0]["digest"]["sha256"] = digest
        it.files[name] = attest.envelope(statement)
    it.files.pop(PUBLIC_KEY, None)
    return it.write(path, results=False, attested=False)


@forgery("read again")
def failed_trial_excused_by_its_provider(it: Forger, path: Path, key: Path) -> Path:
    return excuse(it, path, "provider")


@forgery("read again")
def failed_trial_excused_by_the_harness(it: Forger, path: Path, key: Path) -> Path:
    return excuse(it, path, "harness")


def excuse(it: Forger, path: Path, cause: str) -> Path:
    rows, row, entry = failed(it, "control")
    for name in ("pass", "score", "reasoning", "grades"):
        entry.pop(name, None)
    entry["failure"] = {"cause": cause, "message": "overloaded"}
    entry["toolErrors"] = cause == "harness"
    count_again(row)
    it.put_rows("control", rows)
    return it.write(path)


@forgery("read again")
def cost_lowered(it: Forger, path: Path, key: Path) -> Path:
    rows = it.rows("treatment")
    for row in rows:
        for entry in row["trials"]:
            entry["usage"]["costUsd"] = 0.0001
    it.put_rows("treatment", rows)
    return it.write(path)


@forgery("read again")
def model_renamed(it: Forger, path: Path, key: Path) -> Path:
    rows = it.rows("treatment")
    for row in rows:
        for entry in row["trials"]:
            entry["agent"]["model"] = "small-and-cheap"
    it.put_rows("treatment", rows)
    return it.write(path)


@forgery("read again")
def streams_of_two_trials_swapped(it: Forger, path: Path, key: Path) -> Path:
    rows = it.rows("control")
    names = [it.streams("control", row["id"], 1)[0] for row in rows[:2]]
    it.files[names[0]], it.files[names[1]] = it.files[names[1]], it.files[names[0]]
    return it.write(path)


@forgery("read again")
def stream_left_out(it: Forger, path: Path, key: Path) -> Path:
    _, row, entry = failed(it, "control")
    for name in it.streams("control", row["id"], entry["trialNum"]):
        del it.files[name]
    return it.write(path)


@forgery("computed again")
def hint_changed(it: Forger, path: Path, key: Path) -> Path:
    rows, row, entry = failed(it, "control")
    row["hint"] = entry["output"]
    pass_it(entry)
    count_again(row)
    it.put_rows("control", rows)
    return it.write(path)


@forgery("computed again")
def hint_changed_in_the_prompts_too(it: Forger, path: Path, key: Path) -> Path:
    rows, row, entry = failed(it, "control")
    row["hint"] = entry["output"]
    it.put_rows("control", rows)
    other = it.rows("treatment")
    for one in other:
        if one["id"] == row["id"]:
            one["hint"] = row["hint"]
    it.put_rows("treatment", other)
    asked = [json.loads(line) for line in it.files[PROMPTS].splitlines()]
    for one in asked:
        if one["id"] == row["id"]:
            one["hint"] = row["hint"]
    lines = {one["id"]: msgspec.json.encode(one) for one in asked}
    it.files[PROMPTS] = b"".join(line + b"\n" for line in lines.values())
    text = msgspec.json.encode([lines[id_].decode() for id_ in sorted(lines)])
    it.put(PLAN, it.json(PLAN) | {"promptsDigest": hashlib.sha256(text).hexdigest()})
    return it.write(path)


@forgery("intact")
def file_added(it: Forger, path: Path, key: Path) -> Path:
    it.write(path)
    with Bundle(path) as bundle:
        names = [*bundle.entries]
        with path.with_suffix(".new").open("wb") as file:
            writer = BundleWriter(file)
            for name in names:
                writer.copy(bundle, name)
            writer.add("graders/0/helper.py", [b"print('more')\n"])
            writer.close()
    return path.with_suffix(".new").replace(path)


@forgery("intact")
def root_edited(it: Forger, path: Path, key: Path) -> Path:
    it.manifest = msgspec.structs.replace(it.manifest, root="0" * 64)
    return it.write(path, manifest=False, results=False)


@forgery("intact")
def attestation_of_another_bundle(it: Forger, path: Path, key: Path) -> Path:
    it.put(PLAN, it.json(PLAN) | {"versions": {}})
    return it.write(path, results=False, attested=False)


def forged(bundle: Path, folder: Path, key: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield each forgery of a bundle: its name, the level that should refuse it, and its file."""
    for number, (name, (level, make)) in enumerate(FORGERIES.items()):
        yield name, level, make(Forger(bundle), folder / f"forged-{number}.zip", key)
