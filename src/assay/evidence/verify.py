"""Verify a bundle level by level, and trust nothing in it.

What a level needs of the bundle it reads from the archive itself. This runs in a process of its own
(inside.py), which can neither write nor connect.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from assay import plugins
from assay.adapters.text import TextRows
from assay.errors import AssayError
from assay.evidence import attest
from assay.evidence.redact import Openings, salted_stream
from assay.evidence.reread import Stream, read_again
from assay.evidence.results import Verdict, compute, differences, experiment_differences
from assay.evidence.sources import Resolved
from assay.export.optional import signing
from assay.library.registration import Registration, held, plan_of
from assay.pipeline.made_of import DEFAULT_K, MadeOf
from assay.pipeline.stages import local_machine
from assay.plugin import Adapter
from assay.records.bundle import (
    ATTESTATION,
    MANIFEST,
    OPENINGS,
    ORIGINAL,
    PLAN,
    PROMPTS,
    RESULTS,
    REVEALED,
    ROWS,
    Bundle,
    Damaged,
    Leaf,
    StreamPart,
    is_unlisted,
    leaf_digest,
    part_name,
    tree_root,
    trials_of_line,
)
from assay.records.capture import Identity, identity_differences
from assay.records.experiment import REGISTERED, RESOLVED, VERDICT
from assay.records.files import short_hash
from assay.records.rows import UNREADABLE, explain, read_lines
from assay.records.spec import PluginRef, Prompt
from assay.records.text import counted_noun
from assay.records.trial import PASS_FIELDS, Trial
from assay.records.trial.files import trials_in
from assay.stats.passk import pass_numbers

type State = Literal["holds", "differs", "unchecked", "none"]
GRADED = "graded again"
LEVELS = ("intact", "signed", "read again", GRADED, "computed again", "replayed")
MOST_SHOWN = 20
"""Of details that are alike."""
PUBLIC_KEY = f"{ATTESTATION}public-key.pem"
_OF_ATTESTATION = frozenset({*attest.FILES.values(), attest.SIGSTORE, PUBLIC_KEY})
_MOST_JSON = 256 * 1024 * 1024


class Level(msgspec.Struct, kw_only=True):
    """What holds at one level."""

    name: str
    state: State
    words: str
    differences: list[str] = []
    unchecked: list[str] = []
    """What could not be checked, and why."""

    @classmethod
    def of(
        cls, name: str, words: str, differs: Sequence[str] = (), unchecked: Sequence[str] = ()
    ) -> "Level":
        """Return a level; what differs counts more than what could not be checked."""
        state: State = "differs" if differs else "unchecked" if unchecked else "holds"
        return cls(
            name=name,
            state=state,
            words=words,
            differences=_few(differs),
            unchecked=_few(unchecked),
        )


class Report(msgspec.Struct, kw_only=True, rename="camel"):
    """What verify has found."""

    bundle: str = ""
    levels: list[Level]
    root: str = ""
    digest: str = ""
    withheld: str = ""
    open_to: list[str] = []
    """What could not be shut out while it was verified."""
    about: dict[str, Any] = {}
    """What a board shows of it: the runs, their rates, prompts and graders."""

    @property
    def code(self) -> int:
        states = {level.state for level in self.levels}
        return 3 if "differs" in states else 4 if "unchecked" in states else 0

    def state(self, name: str) -> State:
        return next((one.state for one in self.levels if one.name == name), "unchecked")


def _few(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MOST_SHOWN
    return [*lines[:MOST_SHOWN], *([f"… and {more} more"] if more > 0 else [])]


class Run(msgspec.Struct, kw_only=True):
    """A run as the plan has it."""

    label: str
    rows: str
    file: str = ""
    reader: dict[str, Any] | None = None
    identity: Identity | None = None


class Plan(msgspec.Struct, kw_only=True, rename="camel"):
    """What of plan.json is used."""

    runs: list[Run]
    prompts_digest: str
    graders_digest: str
    trials: dict[str, dict[str, int]]
    assurance: str = "self-attested"
    reproduces: str = ""


class Verification:
    """A bundle that is being verified; folder is an empty one to write to."""

    def __init__(self, bundle: Bundle, folder: Path, public: Sequence[bytes] = ()) -> None:
        self.bundle, self.folder, self._public = bundle, folder, public
        self._fingerprint: str | None = None
        """Of the key that signed it."""
        self.digest = hashlib.sha256(bundle.read(MANIFEST)).hexdigest()

    def report(self) -> Report:
        """Return what holds, but for the level that runs code of the bundle: see regrade.py."""
        steps: dict[str, Callable[[], Level]] = {
            "intact": self.intact,
            "signed": self.signed,
            "read again": self.read_again,
            "computed again": self.computed_again,
            "replayed": self.replayed,
        }
        withheld = self.bundle.manifest.withheld
        return Report(
            levels=[guarded(name, step) for name, step in steps.items()],
            root=self.bundle.manifest.root,
            digest=self.digest,
            withheld=self._withheld_words() if withheld else "",
            about=self._about(),
        )

    # What the levels share.

    @cached_property
    def plan(self) -> Plan:
        found: Plan = self.bundle.json(PLAN, Plan)
        return found

    @cached_property
    def openings(self) -> Openings:
        if OPENINGS not in self.bundle.entries:
            return Openings()
        found: Openings = self.bundle.json(OPENINGS, Openings, _MOST_JSON)
        return found

    @cached_property
    def rows(self) -> dict[str, Path]:
        """The rows of each run, unpacked as they are in the bundle."""
        found = {}
        for run in self.plan.runs:
            name = run.rows if run.rows.startswith(ROWS) else ""
            place = self.folder / part_name(run.label) / part_name(run.file or "rows.jsonl")
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as out:
                if name not in self.bundle.entries:
                    msg = f"{run.label}: its rows are missing"
                    raise Damaged(msg)
                out.writelines(self.bundle.blocks(name))
            found[run.label] = place
        return found

    @cached_property
    def leaves(self) -> dict[tuple[str, str, int], Leaf]:
        leaves = self.bundle.manifest.leaves
        return {(leaf.run, leaf.id, leaf.trial): leaf for leaf in leaves}

    def trials(self, label: str) -> Iterator[Trial]:
        """Yield the trials of a run, with what was revealed of them."""
        for place, line in read_lines(self.rows[label]):
            if self.openings.texts:
                line = msgspec.json.encode(self.openings.restored(msgspec.json.decode(line)))
            yield from trials_in(line, place)

    def streams(self, leaf: Leaf) -> list[Stream] | None:
        """Return the raw streams of a trial; None if one is withheld."""
        found = []
        for one in leaf.streams:
            name = one.part or f"{REVEALED}{one.digest}"
            if name not in self.bundle.entries:
                return None
            found.append(Stream(one.name, self.bundle.read(name)))
        return found

    def _withheld_words(self) -> str:
        withheld, shown = self.bundle.manifest.withheld, self.openings
        assert withheld is not None
        words = f"{counted_noun(withheld.texts, 'text')} and {withheld.streams} raw streams"
        if shown.texts or shown.streams:
            words += f", of which {len(shown.texts)} and {len(shown.streams)} were revealed"
        left = f"; left out: {', '.join(withheld.parts)}" if withheld.parts else ""
        return f"withheld ({', '.join(withheld.what)}): {words}{left}"

    def _about(self) -> dict[str, Any]:
        try:
            results = self.bundle.json(RESULTS, dict[str, Any])
        except AssayError:
            return {}
        return {
            "promptsDigest": self.plan.prompts_digest,
            "gradersDigest": self.plan.graders_digest,
            "assurance": self.plan.assurance,
            "reproduces": self.plan.reproduces,
            "key": self._fingerprint,
            "runs": results.get("runs", {}),
            "verdicts": results.get("verdicts", {}),
        }

    # The levels.

    def intact(self) -> Level:
        """Every digest; nothing missing, nothing extra."""
        bundle, manifest = self.bundle, self.bundle.manifest
        found = [*bundle.irregular, *self._wrong_parts(), *self._wrong_leaves()]
        if manifest.encode() != bundle.read(MANIFEST):
            found.append(f"{MANIFEST}: it is not written as Assay writes it")
        found += [f"{OPENINGS}: {one[:16]}… is not the digest of its text"
                  for one in self.openings.false_ones()]  # fmt: skip
        found += self._wrong_subjects()
        trials, parts = len(manifest.leaves), len(manifest.parts)
        words = f"{counted_noun(trials, 'trial')}, {counted_noun(parts, 'part')}"
        return Level.of("intact", f"{words}; Merkle root {manifest.root[:16]}…", found)

    def _wrong_parts(self) -> Iterator[str]:
        bundle, manifest = self.bundle, self.bundle.manifest
        streams = [one for leaf in manifest.leaves for one in leaf.streams if one.part]
        expected = {name: (part.sha256, part.packed) for name, part in manifest.parts.items()}
        expected |= {one.part: (one.digest, one.packed) for one in streams}
        if len(expected) != len(manifest.parts) + len(streams):
            yield f"{MANIFEST}: it lists a file twice"
        for name, digests in expected.items():
            try:
                if name not in bundle.entries:
                    yield f"{name}: it is missing"
                elif self._digests(name) != digests:
                    yield f"{name}: it is not what the manifest says"
            except Damaged as error:
                yield error.message.removeprefix(f"{bundle.path}: ")
        for name, part in manifest.parts.items():
            if name in bundle.entries and bundle.entries[name].size != part.bytes:
                yield f"{name}: its size is not what the manifest says"
        yield from self._unknown_parts({*expected, MANIFEST})

    def _unknown_parts(self, listed: set[str]) -> Iterator[str]:
        revealed = {f"{REVEALED}{digest}" for digest in self.openings.streams}
        known = {*listed, *_OF_ATTESTATION, OPENINGS, *revealed}
        for name, entry in self.bundle.entries.items():
            if name not in known:
                yield f"{name}: nothing says that it belongs to the bundle"
            elif is_unlisted(name) and entry.method:
                yield f"{name}: it is compressed, which it may not be"

    def _digests(self, name: str) -> tuple[str, str]:
        content, packed = hashlib.sha256(), hashlib.sha256()
        for block in self.bundle.blocks(name):
            content.update(block)
        for block in self.bundle.packed_blocks(name):
            packed.update(block)
        return content.hexdigest(), packed.hexdigest()

    def _wrong_leaves(self) -> Iterator[str]:
        manifest = self.bundle.manifest
        if tree_root([leaf.digest for leaf in manifest.leaves]) != manifest.root:
            yield "the root of the Merkle tree does not follow from its leaves"
        left = dict(self.leaves)
        if len(left) != len(manifest.leaves):
            yield "a trial is in the manifest twice"
        for run in self.plan.runs:
            for place, line in read_lines(self.rows[run.label]):
                try:
                    trials = trials_of_line(line)
                except UNREADABLE as error:
                    yield f"{run.rows}:{place.rpartition(':')[2]}: {explain(error)}"
                    continue
                for trial in trials:
                    name = f"{run.label}, {trial.id}, trial {trial.number}"
                    leaf = left.pop((run.label, trial.id, trial.number), None)
                    if leaf is None:
                        yield f"{name}: it is no leaf of the tree, or is in the rows twice"
                        continue
                    streams = [(one.name, one.digest) for one in leaf.streams]
                    if leaf_digest(run.label, trial, streams) != leaf.digest:
                        yield f"{name}: its row is not that of its leaf"
        for leaf in left.values():
            yield f"{leaf.run}, {leaf.id}, trial {leaf.trial}: a leaf of the tree has no row"
        yield from self._wrong_reveals()

    def _wrong_reveals(self) -> Iterator[str]:
        wanted = {one.digest for leaf in self.leaves.values() for one in leaf.streams}
        for digest, salt in self.openings.streams.items():
            name = f"{REVEALED}{digest}"
            if name not in self.bundle.entries:
                yield f"{name}: it is missing"
            elif digest not in wanted:
                yield f"{name}: no trial has this stream"
            elif salted_stream(salt, self.bundle.blocks(name)) != digest:
                yield f"{name}: it is not the stream that was withheld"

    def _wrong_subjects(self) -> Iterator[str]:
        for kind, name in attest.FILES.items():
            try:
                data = self.bundle.read(name, _MOST_JSON)
                statement = attest.decode_envelope(data, name).statement
            except AssayError as error:
                yield error.message.removeprefix(f"{self.bundle.path}: ")
                continue
            if statement.get("predicateType") != kind or statement.get("_type") != attest.STATEMENT:
                yield f"{name}: it is no statement of this kind"
            elif _subjects(statement) != [self.digest]:
                yield f"{name}: it is about another manifest"

    def signed(self) -> Level:
        """Whose signature it has, if it has one."""
        name = "signed"
        envelopes = {
            file: attest.decode_envelope(self.bundle.read(file), file)
            for file in attest.FILES.values()
        }
        is_signed = any(one.signatures for one in envelopes.values())
        statement = envelopes[attest.FILES[attest.EVALUATION]].statement
        when = (statement.get("predicate") or {}).get("signedOn")
        on = f" on {when}, as it says itself" if when else ""
        if attest.SIGSTORE in self.bundle.entries and not self._public:
            return self._signed_keyless(on)
        if not is_signed and not self._public:
            return Level(name=name, state="none", words="not signed")
        if not is_signed:
            return Level.of(name, "not signed", ["it is not signed, and a key was given"])
        module = signing()
        given = [module.read_public(data, "--key") for data in self._public]
        own = PUBLIC_KEY in self.bundle.entries
        keys = given or (
            [module.read_public(self.bundle.read(PUBLIC_KEY), PUBLIC_KEY)] if own else []
        )
        if not keys:
            return Level.of(name, "signed by a key that is not here", (), ["give it with --key"])
        signers = {file: module.signer_of(self.bundle.read(file), keys) for file in envelopes}
        wrong = [
            f"{file}: it is not signed by {'this key' if given else 'the key in the bundle'}"
            for file, signer in signers.items()
            if signer is None
        ]
        wrong += [f"{file}: it is about another manifest" for file, one in envelopes.items()
                  if _subjects(one.statement) != [self.digest]]  # fmt: skip
        if wrong:
            return Level.of(name, "not as it should be", wrong)
        print_ = self._fingerprint = module.fingerprint(next(filter(None, signers.values())))
        whose = "the key that was given" if given else "whose key it is, --key PUB tells"
        return Level.of(name, f"by key {print_}{on} ({whose})")

    def _signed_keyless(self, on: str) -> Level:
        try:
            who, payload = attest.keyless().verify(self.bundle.read(attest.SIGSTORE))
        except AssayError as error:
            return Level.of("signed", "by sigstore", (), [error.message])
        statement = msgspec.json.decode(payload)
        if _subjects(statement) != [self.digest]:
            return Level.of("signed", f"by {who}", ["the signature is about another manifest"])
        return Level.of("signed", f"by {who}{on}, through sigstore")

    def read_again(self) -> Level:
        """Every row follows from its raw streams."""
        differs, unchecked = list[str](), list[str]()
        n_read = n_withheld = n_all = n_fields = 0
        why: Counter[str] = Counter()
        for run in self.plan.runs:
            adapter, problem = self._adapter(run)
            for trial in self.trials(run.label):
                n_all += 1
                place = f"{run.label}, {trial.id}, trial {trial.number}"
                leaf = self.leaves.get((run.label, trial.id, trial.number))
                streams = self.streams(leaf) if leaf is not None else []
                if streams is None:
                    n_withheld += 1
                    continue
                if adapter is None:
                    why[f"{run.label}: {problem}"] += 1
                    continue
                found = read_again(trial, streams, adapter)
                n_fields += found.n_withheld
                if found.differences and problem:
                    why[f"{run.label}: {problem}"] += 1
                    continue
                differs += [f"{place}: {one}" for one in found.differences]
                unchecked += [f"{place}: {found.unchecked}"] if found.unchecked else []
                n_read += not found.differences and not found.unchecked
        unchecked += [f"{words} ({counted_noun(n, 'trial')})" for words, n in why.items()]
        words = f"{n_read} of {counted_noun(n_all, 'trial')}{_withheld(n_withheld)}"
        words += f", {counted_noun(n_fields, 'field')} of others withheld" if n_fields else ""
        if n_withheld == n_all and not differs and not unchecked:
            return Level(name="read again", state="none", words=words)
        return Level.of("read again", words, differs, unchecked)

    def _adapter(self, run: Run) -> tuple[Adapter | None, str]:
        """Return what reads the streams of a run, and what to know of it."""
        if run.reader is None:
            return None, "nothing says how its streams are read"
        try:
            ref = msgspec.convert(run.reader.get("ref"), PluginRef)
            if ref.name == "text":
                return TextRows(run.identity.adapter if run.identity else "text"), ""
            if ref.name not in plugins.names("assay.adapters"):
                return None, f"the adapter {ref.name!r} is not installed"
            adapter = plugins.adapter(ref)
        except (AssayError, TypeError, ValueError, msgspec.MsgspecError) as error:
            return None, f"its adapter cannot be used: {error}"
        version = str(run.reader.get("version"))
        if version != adapter.reader_version:
            now = adapter.reader_version
            return (
                adapter,
                f"it was read by version {version} of {ref.name}'s reader, here is {now}",
            )
        return adapter, ""

    def computed_again(self) -> Level:
        """Every rate, interval, p-value and the decision follow from the rows."""
        kept = self.bundle.json(RESULTS, dict[str, Any], _MOST_JSON)
        resolved, verdict = self._of_experiment()
        margin, seed = kept.get("margin"), kept.get("seed")
        wrong = list[str]()
        if resolved is not None:
            margin, seed = resolved.experiment.margin, resolved.experiment.seed
            labels = [resolved.experiment.control, *resolved.experiment.treatments]
            if labels != [run.label for run in self.plan.runs]:
                wrong.append("the runs are not the arms of the experiment, in their order")
        if not isinstance(margin, int | float) or not isinstance(seed, int):
            return Level.of("computed again", "", [f"{RESULTS}: it has no margin or no seed"])
        named = [(run.label, self.rows[run.label]) for run in self.plan.runs]
        found = compute(named, margin=margin, seed=seed, verdict=verdict)
        wrong += differences(kept, found, RESULTS)
        wrong += self._wrong_plan(resolved)
        wrong += self._wrong_rates()
        if resolved is not None and verdict is not None:
            wrong += self._wrong_registration(resolved)
            wrong += experiment_differences(resolved.experiment, verdict, found)
        wrong += self._wrong_predicates(found)
        n_pairs = len(found.get("pairs", ()))
        words = f"{counted_noun(len(named), 'run')}, {counted_noun(n_pairs, 'comparison')}"
        codes = [f"{name}: {one['code']}" for name, one in found.get("verdicts", {}).items()]
        return Level.of("computed again", "; ".join([words, *codes]), list(dict.fromkeys(wrong)))

    def _of_experiment(self) -> tuple[Resolved | None, Verdict | None]:
        if f"experiment/{RESOLVED}" not in self.bundle.entries:
            return None, None
        resolved = self.bundle.json(f"experiment/{RESOLVED}", Resolved)
        return resolved, self.bundle.json(f"experiment/{VERDICT}", Verdict)

    def _wrong_plan(self, resolved: Resolved | None) -> Iterator[str]:
        """Say where the rows are not those of the plan: trials too few, too many, of other arms."""
        for run in self.plan.runs:
            trials = [*self.trials(run.label)]
            counts, planned = Counter(t.id for t in trials), self.plan.trials.get(run.label, {})
            for id_ in sorted(counts.keys() | planned.keys()):
                if counts[id_] != planned.get(id_, 0):
                    n = f"{counts[id_]} trials in the rows, {planned.get(id_, 0)} in the plan"
                    yield f"{run.label}, {id_}: {n}"
            known = resolved.arms[run.label].identity if resolved else run.identity
            if known is not None:
                yield from _other_set_ups(run.label, known, trials)
            arms = resolved.arms if resolved else {}
            yield from _of_other_arms(
                run.label, {n: arm.identity for n, arm in arms.items()}, trials
            )
        yield from self._wrong_prompts()
        if resolved is not None:
            yield from self._wrong_numbers(resolved)

    def _wrong_prompts(self) -> Iterator[str]:
        asked: dict[str, str] = {}
        for _, line in _lines_of(self.bundle.read(PROMPTS)):
            asked[str(msgspec.json.decode(line).get("id"))] = line.decode()
        digest = hashlib.sha256(msgspec.json.encode([asked[id_] for id_ in sorted(asked)]))
        if digest.hexdigest() != self.plan.prompts_digest:
            yield f"{PROMPTS}: it is not what the plan says"
        for run in self.plan.runs:
            for _, line in read_lines(self.rows[run.label]):
                row = msgspec.json.decode(line)
                own = msgspec.json.decode(asked.get(str(row.get("id")), "{}"))
                if any(row.get(key) != own.get(key) for key in ("input", "hint")):
                    yield f"{run.label}, {row.get('id')}: it was asked something else"

    def _wrong_numbers(self, resolved: Resolved) -> Iterator[str]:
        """Say where there are other trials than the experiment has run."""
        about = self.bundle.json(f"experiment/{VERDICT}", dict[str, Any])
        made_of = msgspec.convert(about.get("madeOf") or {}, MadeOf)
        if ORIGINAL in self.bundle.entries:
            yield from self._wrong_original(resolved)
        k = resolved.experiment.k or DEFAULT_K
        effort = about.get("effort") or {}
        is_whole = effort.get("nTrials") == effort.get("nPlanned")
        n = len(self.bundle.manifest.leaves)
        if n != effort.get("nTrials"):
            yield f"{n} trials are in the bundle, and the verdict rests on {effort.get('nTrials')}"
        for run in self.plan.runs if is_whole else ():
            own_trials = self.plan.trials.get(run.label, {})
            for id_ in sorted(made_of.prompts.keys() | own_trials.keys()):
                if own_trials.get(id_, 0) != k:
                    has = own_trials.get(id_, 0)
                    yield f"{run.label}, {id_}: {has} trials, and {k} were planned"

    def _wrong_original(self, resolved: Resolved) -> Iterator[str]:
        """Say where the prompts are not those that the experiment read."""
        data = self.bundle.read(ORIGINAL)
        if short_hash(data) != resolved.inputs.get(resolved.experiment.prompts or ""):
            yield f"{ORIGINAL}: it is not the file that the experiment read"
        try:
            asked = [msgspec.json.decode(line, type=Prompt) for _, line in _lines_of(data)]
        except UNREADABLE:
            return  # in another format, such as CSV
        by_id = {prompt.id: prompt for prompt in asked}
        for _, line in _lines_of(self.bundle.read(PROMPTS)):
            row = msgspec.json.decode(line)
            prompt = by_id.get(str(row.get("id")))
            if prompt is None or (row.get("input"), row.get("hint")) != (prompt.input, prompt.hint):
                yield f"{row.get('id')}: the experiment asked something else"

    def _wrong_rates(self) -> Iterator[str]:
        """Say where a row of trials does not say what follows from its trials."""
        for run in self.plan.runs:
            for place, line in read_lines(self.rows[run.label]):
                if b'"trials"' not in line:
                    continue
                row = msgspec.json.decode(line)
                kept = {name: row[name] for name in PASS_FIELDS if name in row}
                passed = [one.grade.pass_ if one.grade else msgspec.UNSET
                          for one in trials_in(line, place)]  # fmt: skip
                numbers = msgspec.json.decode(msgspec.json.encode(pass_numbers(passed)))
                again = {_camel(name): value for name, value in numbers.items()}
                yield from differences(kept, again, f"{run.label}, {row.get('id')}")

    def _wrong_predicates(self, results: dict[str, Any]) -> Iterator[str]:
        plan = self.bundle.json(PLAN, dict[str, Any])
        if RESULTS not in self.bundle.manifest.parts:
            yield f"{RESULTS}: the manifest does not list it"
            return
        said = attest.statements(self.bundle.manifest, self.digest, plan, results)
        for kind, file in attest.FILES.items():
            kept = attest.decode_envelope(self.bundle.read(file), file).statement.get("predicate")
            predicate = dict(kept) if isinstance(kept, dict) else {}
            predicate.pop("signedOn", None)
            yield from differences(predicate, said[kind]["predicate"], file)

    def replayed(self) -> Level:
        """What surrounded the agents does again what its logs say."""
        logs: dict[str, list[tuple[str, Path, dict[str, Any]]]] = {}
        unchecked, n_withheld = list[str](), 0
        for run in self.plan.runs:
            for trial in self.trials(run.label):
                about = {**trial.metadata, **(trial.trial_metadata or {})}
                evidence = about.get("evidence")
                if not isinstance(evidence, dict) or not evidence.get("log"):
                    continue
                place = f"{run.label}, {trial.id}, trial {trial.number}"
                leaf = self.leaves.get((run.label, trial.id, trial.number))
                log = (
                    next(
                        (one for one in leaf.streams if one.name == f"log/{evidence['log']}"), None
                    )
                    if leaf
                    else None
                )
                path = self._log(log) if log else None
                if path is None:
                    n_withheld += log is not None
                    unchecked += [] if log else [f"{place}: its log is not in the bundle"]
                    continue
                logs.setdefault(str(evidence.get("benchmark")), []).append((place, path, evidence))
        differs, n_played = list[str](), 0
        for name, own in logs.items():
            for (place, _, _), (agrees, words) in zip(own, _replay(name, own), strict=True):
                n_played += agrees is True
                differs += [f"{place}: {words}"] if agrees is False else []
                unchecked += [f"{place}: {words}"] if agrees is None else []
        if not logs and not unchecked:
            return Level(name="replayed", state="none", words=f"no games{_withheld(n_withheld)}")
        words = f"{counted_noun(n_played, 'game')}{_withheld(n_withheld)}"
        return Level.of("replayed", words, differs, unchecked)

    def _log(self, stream: StreamPart) -> Path | None:
        name = stream.part or f"{REVEALED}{stream.digest}"
        if name not in self.bundle.entries:
            return None
        place = self.folder / "logs" / f"{stream.digest}.jsonl"
        place.parent.mkdir(exist_ok=True)
        with place.open("wb") as out:
            out.writelines(self.bundle.blocks(name))
        return place

    def _wrong_registration(self, resolved: Resolved) -> Iterator[str]:
        """Say where the verdict does not say what follows from the plan that was registered."""
        about = self.bundle.json(f"experiment/{VERDICT}", dict[str, Any])
        kept, name = about.get("registration"), f"experiment/{REGISTERED}"
        if name not in self.bundle.entries:
            if kept is not None and kept.get("changed") == []:
                yield f"{name}: the verdict says that the plan was registered, and it is missing"
            return
        registration = self.bundle.json(name, Registration)
        made_of = msgspec.convert(about.get("madeOf") or {}, MadeOf)
        plan = plan_of(resolved.experiment, made_of, confirm=about.get("confirm") is True)
        again = msgspec.to_builtins(held(registration, plan))
        if kept is not None and "the registration itself" in kept.get("changed", ()):
            return
        yield from differences(kept, again, "verdict.json: registration")
        if registration.envelope is not None:
            yield from _wrong_envelope(registration)


def _wrong_envelope(registration: Registration) -> Iterator[str]:
    data = msgspec.json.encode(registration.envelope)
    said = attest.decode_envelope(data, REGISTERED).statement
    if said != {"registered": registration.registered, "plan": registration.plan}:
        yield f"{REGISTERED}: another plan was signed"
    key = signing().read_public(registration.public_key.encode(), REGISTERED)
    if signing().signer_of(data, [key]) is None:
        yield f"{REGISTERED}: it is not signed by the key that it names"


def _replay(
    name: str, logs: Sequence[tuple[str, Path, dict[str, Any]]]
) -> Sequence[tuple[bool | None, str]]:
    try:
        if name not in plugins.names("assay.benchmarks"):
            return [(None, f"the benchmark {name!r} is not installed")] * len(logs)
        benchmark = plugins.benchmark(PluginRef(name=name))
        found = benchmark.replay([(path, evidence) for _, path, evidence in logs], local_machine())
    except AssayError as error:
        return [(None, error.message)] * len(logs)
    return [(None, f"{name} cannot replay it")] * len(logs) if found is None else found


def guarded(name: str, step: Callable[[], Level]) -> Level:
    """Return a level; what cannot even be read differs from what Assay writes."""
    try:
        return step()
    except Damaged as error:
        return Level.of(name, "it cannot be read", [error.message])
    except AssayError as error:
        return Level.of(name, "it could not be checked", (), [error.message])
    except (ValueError, LookupError, TypeError, AttributeError, OSError, *UNREADABLE) as error:
        why = f"{type(error).__name__}: {error}"
        return Level.of(name, "it is not as Assay writes it", [why])


def _subjects(statement: dict[str, Any]) -> list[Any]:
    subjects = statement.get("subject")
    if not isinstance(subjects, list):
        return []
    return [(one.get("digest") or {}).get("sha256") for one in subjects if isinstance(one, dict)]


def _other_set_ups(label: str, known: Identity, trials: Sequence[Trial]) -> Iterator[str]:
    """Say where trials were made by another set-up than their run's."""
    found = {msgspec.json.encode(one.identity): one.identity for one in trials if one.identity}
    for identity in found.values():
        # Prompts may bring graders and files of their own.
        own = msgspec.structs.replace(
            identity, graders=known.graders, offered=known.offered, template=known.template,
            setup=known.setup, mcp_files=known.mcp_files, limits=known.limits,
        )  # fmt: skip
        for words in identity_differences(known, own):
            yield f"{label}: its rows were made by another set-up: {words}"


def _of_other_arms(
    label: str, arms: Mapping[str, Identity], trials: Sequence[Trial]
) -> Iterator[str]:
    """Say where trials of an arm were made by the set-up of another."""
    for name, other in arms.items():
        if name != label and other != arms.get(label):
            n = sum(1 for trial in trials if trial.identity == other)
            if n:
                yield f"{label}: {counted_noun(n, 'trial')} were made by the set-up of {name}"


def _withheld(n: int) -> str:
    return f", {n} withheld" if n else ""


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _lines_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            yield number, line
