"""Put a result into one file that a stranger can verify: see docs/evidence.md."""

import datetime
import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assay import __version__, plugins
from assay.compare.names import Named
from assay.compare.report import CompareOptions
from assay.errors import AssayError, InputError
from assay.evidence import attest
from assay.evidence.redact import Openings, Redactor, openings_path
from assay.evidence.results import compute
from assay.evidence.sources import (
    GraderPart,
    Sources,
    agent_of_arm,
    changed_inputs,
    find_sources,
    grader_part,
    reader_of,
    streams_of,
)
from assay.export.optional import signing
from assay.library.registration import read_registration
from assay.pipeline.prompts import read_prompts
from assay.pipeline.row_settings import RowGraders, own_graders, prompt_folder, split_judge
from assay.records.bundle import (
    ATTESTATION,
    MANIFEST,
    ORIGINAL,
    PLAN,
    PROMPTS,
    RAW,
    RESULTS,
    ROWS,
    SCHEMA,
    BundleWriter,
    Leaf,
    Manifest,
    Part,
    StreamPart,
    TrialBytes,
    Withheld,
    leaf_digest,
    part_name,
    tree_root,
    trials_of_line,
)
from assay.records.capture import Identity
from assay.records.experiment import REGISTERED, RESOLVED, VERDICT
from assay.records.files import replaced_file, temporary_folder
from assay.records.raw_streams import KeptStream
from assay.records.rows import read_lines
from assay.records.spec import PluginRef
from assay.records.trial.files import entries_of, holds_trials
from assay.run.workspace import our_secrets
from assay.viewer.bundle import write_bundle
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview

_OF_RUN = ("run-meta.json", "scorecard.json", "environment-scores.json")
"""What an ARC run has beside its rows."""
_OF_PROMPT = ("id", "input", "hint", "expect", "graders", "reference", "files", "setup", "tags")
_SECRETS = re.compile(
    rb"sk-ant-[\w-]{20,}|sk-(?:proj-)?[A-Za-z0-9]{32,}|gh[pousr]_[A-Za-z0-9]{36}|AKIA[0-9A-Z]{16}"
    rb"|github_pat_\w{22,}|glpat-[\w-]{20,}|AIza[\w-]{35}|xox[abprs]-[\w-]{10,}|hf_[A-Za-z0-9]{30,}"
    rb"|npm_[A-Za-z0-9]{36}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    rb"|eyJ[\w-]{16,}\.eyJ[\w-]{16,}\.[\w-]{16,}"
)
_LONGEST_SECRET = 256
_KEY = f"{ATTESTATION}public-key.pem"


class PackRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is packed, and how."""

    given: Sequence[str]
    output: Path
    graders: Sequence[PluginRef] = ()
    """Of files; an experiment knows its own."""
    prompts: PluginRef | None = None
    """From where the rows of files come, for the graders of single prompts."""
    agent: str | None = None
    """What -s was given for files, if the rows do not say how their streams are read."""
    margin: float = 0.02
    seed: int = 20_260_101
    include: Sequence[str] = ()
    redact: Sequence[str] = ()
    key: Path | None = None
    keyless: bool = False
    reproduces: Path | None = None
    """An earlier bundle of the same measurement, made by somebody else."""


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    path: Path
    digest: str
    """Of the manifest: what is signed."""
    root: str
    n_trials: int
    n_parts: int
    private: Path | None
    """Where the texts are that the bundle withholds."""
    notes: list[str]
    """What `verify` will not be able to check, and why."""


def pack(request: PackRequest) -> Packed:
    """Write a bundle; the same input gives the same bytes."""
    signer = signing().read_signer(request.key) if request.key else None
    if request.keyless:
        attest.keyless()
    sources = find_sources(request.given)
    with temporary_folder("assay-pack-") as scratch, replaced_file(request.output) as file:
        packer = _Packer(request, sources, BundleWriter(file), Path(scratch))
        manifest, plan, results = packer.write()
        data = manifest.encode()
        digest = hashlib.sha256(data).hexdigest()
        packer.writer.add(MANIFEST, [data], store=True)
        said = attest.statements(manifest, digest, plan, results)
        _sign(packer.writer, said, signer, keyless=request.keyless)
        packer.writer.close()
        private = _keep_openings(packer.redactor, request.output)
    return Packed(
        path=request.output,
        digest=digest,
        root=manifest.root,
        n_trials=len(manifest.leaves),
        n_parts=len(manifest.parts),
        private=private,
        notes=packer.notes,
    )


def _sign(
    writer: BundleWriter, said: Mapping[str, dict[str, Any]], signer: Any, *, keyless: bool
) -> None:
    if signer is not None or keyless:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        said[attest.EVALUATION]["predicate"]["signedOn"] = today
    for kind, name in attest.FILES.items():
        writer.add(name, [attest.envelope(said[kind], signer)], store=True)
    if signer is not None:
        pem = signing().public_pem(signer.public_key)
        writer.add(_KEY, [pem], store=True)
    if keyless:
        statement = msgspec.json.encode(said[attest.EVALUATION], order="deterministic")
        writer.add(attest.SIGSTORE, [attest.keyless().sign(statement)], store=True)


def _keep_openings(redactor: Redactor, output: Path) -> Path | None:
    """Write what is withheld beside the bundle, for its owner alone."""
    if not redactor:
        return None
    path = openings_path(output)
    data = msgspec.json.encode(Openings(redactor.texts, redactor.streams))
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        writer = BundleWriter(file)
        writer.add("openings.json", [data])
        for digest, stream in redactor.kept.items():
            writer.add(f"streams/{digest}", stream.blocks())
        writer.close()
    return path


class _Packer:
    """Writes all parts of one bundle."""

    def __init__(
        self, request: PackRequest, sources: Sources, writer: BundleWriter, scratch: Path
    ) -> None:
        self.writer = writer
        self._request, self._sources, self._scratch = request, sources, scratch
        roots = [
            str(Path.home()),
            str(Path.cwd()),
            *(str(p.parent.resolve()) for _, p in sources.named),
        ]
        self.redactor = Redactor(request.redact, roots)
        self.notes: list[str] = []
        self._parts: dict[str, Part] = {}
        self._leaves: list[Leaf] = []
        self._hidden: set[str] = set()
        self._prompts: dict[str, bytes] = {}
        self._identities: dict[str, Identity] = {}
        self._left_out: list[str] = []
        self._secrets = our_secrets()

    def write(self) -> tuple[Manifest, dict[str, Any], dict[str, Any]]:
        """Write everything that the manifest is about."""
        sources, request = self._sources, self._request
        named = [(label, self._run(label, path)) for label, path in sources.named]
        self._add(PROMPTS, b"".join(line + b"\n" for line in self._prompts.values()))
        graders = self._graders()
        self._experiment()
        plan = self._plan(graders)
        self._add(PLAN, _pretty(plan))
        margin, seed = request.margin, request.seed
        if sources.resolved is not None:
            margin, seed = sources.resolved.experiment.margin, sources.resolved.experiment.seed
        results = compute(named, margin=margin, seed=seed, verdict=sources.verdict)
        self._add(RESULTS, _pretty(results))
        self._report(named, margin, seed)
        manifest = Manifest(
            schema=SCHEMA,
            assay=__version__,
            root=tree_root([leaf.digest for leaf in self._leaves]),
            parts=dict(sorted(self._parts.items())),
            leaves=self._leaves,
            withheld=self._withheld(),
        )
        return manifest, plan, results

    def _withheld(self) -> Withheld | None:
        redactor = self.redactor
        if not redactor:
            return None
        return Withheld(
            what=redactor.what,
            texts=len(redactor.texts),
            streams=redactor.n_streams,
            parts=self._left_out,
        )

    def _run(self, label: str, path: Path) -> Path:
        """Pack the rows of a run and their raw streams; return the rows as they were packed."""
        copy = self._scratch / part_name(label) / path.name
        copy.parent.mkdir(exist_ok=True)
        name = f"{ROWS}{part_name(label)}.jsonl"
        n_rows = 0
        with copy.open("wb") as out:
            for place, line in read_lines(path):
                line = line.strip()
                shown, hidden = self.redactor.row(line, label)
                self._refuse_secrets(shown, place)
                out.write(shown + b"\n")
                self._hidden.update(hidden)
                self._trials(label, path, line, shown, hidden)
                n_rows += 1
        if not n_rows:
            msg = f"{path}: no rows"
            raise InputError(msg)
        with copy.open("rb") as file:
            self._parts[name] = self.writer.add(name, iter(lambda: file.read(1 << 20), b""))
        for beside in _OF_RUN if (path.parent / _OF_RUN[0]).is_file() else ():
            with suppress(FileNotFoundError):
                self._document(f"run/{part_name(label)}/{beside}", path.with_name(beside))
        return copy

    def _trials(
        self, label: str, path: Path, line: bytes, shown: bytes, hidden: Sequence[str]
    ) -> None:
        row = msgspec.json.decode(line)
        own = msgspec.json.decode(shown)
        asked = {key: own[key] for key in _OF_PROMPT if key in own}
        if not holds_trials(row) and "setup" in asked:
            asked.pop("setup")  # what the agent had
        self._prompts.setdefault(str(row["id"]), msgspec.json.encode(asked))
        if label not in self._identities and "identity" in row:
            self._identities[label] = msgspec.convert(row["identity"], Identity)
        streams = dict(streams_of(row, path.parent))
        for trial in trials_of_line(shown):
            kept = [
                self._stream(label, trial, one, hidden) for one in streams.get(trial.number, ())
            ]
            digest = leaf_digest(label, trial, [(one.name, one.digest) for one in kept])
            self._leaves.append(
                Leaf(run=label, id=trial.id, trial=trial.number, digest=digest, streams=kept)
            )

    def _stream(
        self, label: str, trial: TrialBytes, stream: KeptStream, hidden: Sequence[str]
    ) -> StreamPart:
        digest = self.redactor.stream(stream, hidden)
        if digest is not None:
            return StreamPart(name=stream.name, digest=digest)
        where = f"{label}, {trial.id}, trial {trial.number}: {stream.name}"
        number = len(self._leaves)
        name = f"{RAW}{part_name(label)}/{number:06}/{part_name(stream.name.replace('/', '-'))}"
        part = self.writer.add(name, self._checked(stream.blocks(), where))
        return StreamPart(name=stream.name, digest=part.sha256, part=name, packed=part.packed)

    def _graders(self) -> dict[str, Any]:
        """Pack the graders with their files; return who judges what."""
        parts: list[GraderPart] = []
        known: dict[bytes, int] = {}

        def number_of(ref: PluginRef) -> int:
            key = msgspec.json.encode(ref)
            if key not in known:
                part, files = grader_part(ref, len(parts))
                for name, path in files.items():
                    self._add(name, path.read_bytes())
                known[key] = len(parts)
                parts.append(part)
                self.notes += [f"{ref.name}: {one} is not in the bundle" for one in part.not_here]
            return known[key]

        common, own = self._who_judges()
        found: dict[str, Any] = {
            "all": [number_of(ref) for ref in common],
            "own": {id_: [number_of(ref) for ref in refs] for id_, refs in own.items() if refs},
        }
        found["graders"] = msgspec.to_builtins(parts)
        self._add("graders.json", _pretty(found))
        return found

    def _who_judges(self) -> tuple[list[PluginRef], dict[str, Sequence[PluginRef]]]:
        request, resolved = self._request, self._sources.resolved
        timeout_s, graders, benchmark = 60.0, [*request.graders], request.prompts
        if resolved is not None:
            timeout_s = resolved.experiment.grader_timeout
            folder, before = self._sources.cwd, Path.cwd()
            if not folder.is_dir():
                msg = f"{folder}: the folder in which the experiment ran is gone"
                raise InputError(msg, hint="its prompts and graders are found from there")
            os.chdir(folder)  # the paths of the experiment are meant from there
            try:
                texts = resolved.experiment.graders
                graders = [plugins.grader_ref(text, timeout_s) for text in texts]
                if resolved.experiment.prompts:
                    path = str(Path(resolved.experiment.prompts).absolute())
                    benchmark = PluginRef(name="prompts", options={"path": path})
            finally:
                os.chdir(before)
        if not graders and resolved is None:
            graders = self._usual_graders()
        graders, judge = split_judge(graders)
        own: dict[str, Sequence[PluginRef]] = {}
        if benchmark is not None:
            place = prompt_folder(benchmark)
            for prompt, _ in read_prompts(benchmark):
                if prompt.id in self._prompts:
                    own[prompt.id] = own_graders(prompt, place, timeout_s, judge=judge)
            return graders, own
        of_rows = RowGraders(timeout_s, judge)
        for id_, line in self._prompts.items():
            try:
                own[id_] = of_rows.graders_of(id_, line)
            except AssayError as error:
                self.notes.append(f"{error.message}; give the prompts with --prompts")
        return graders, own

    def _usual_graders(self) -> list[PluginRef]:
        """Return the built-in graders of rows that name no others, as they are without options."""
        seen: dict[str, str] = {}
        for _, path in self._sources.named:
            for _, line in read_lines(path):
                row = msgspec.json.decode(line)
                for one in entries_of(row):
                    for name, grade in (one.get("grades") or {}).items():
                        seen[name] = str(grade.get("version"))
        found = []
        for name, version in sorted(seen.items()):
            with suppress(AssayError, TypeError):
                ref = PluginRef(name=name)
                if plugins.grader(ref).version == version:
                    found.append(ref)
                    continue
            self.notes.append(f"the grader {name} is not in the bundle; name it with -g")
        return found

    def _experiment(self) -> None:
        sources = self._sources
        if sources.folder is None:
            return
        for name in (VERDICT, RESOLVED, REGISTERED):
            with suppress(FileNotFoundError):
                self._document(f"experiment/{name}", sources.folder / name)
        if self.redactor.shows_texts:
            with suppress(FileNotFoundError):
                self._add("experiment/verdict.md", (sources.folder / "verdict.md").read_bytes())
        else:
            self._left_out.append("experiment/verdict.md")
        changed = changed_inputs(sources)
        self.notes += [f"{name} has changed since the experiment ran" for name in changed]
        for number, (name, _, path) in enumerate(sources.inputs()):
            is_prompts = sources.resolved and name == sources.resolved.experiment.prompts
            if is_prompts and name not in changed and self.redactor.shows_texts:
                self._add(ORIGINAL, path.read_bytes())
            if "templates" not in self._request.include or name in changed:
                continue
            files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
            for file in files:
                below = file.relative_to(path.parent).parts
                part = "/".join(["templates", str(number), *map(part_name, below)])
                self._add(part, file.read_bytes())

    def _document(self, name: str, path: Path) -> None:
        """Pack a file of JSON that Assay wrote, without what rows withhold."""
        data = path.read_bytes()
        if not self.redactor.shows_texts:
            value = self.redactor.document(msgspec.json.decode(data), self._hidden)
            data = _pretty(value)
        self._add(name, data)

    def _plan(self, graders: Mapping[str, Any]) -> dict[str, Any]:
        sources, resolved = self._sources, self._sources.resolved
        ids = sorted(self._prompts)
        versions = sorted({(one["name"], one["version"]) for one in graders["graders"]})
        runs = []
        for label, path in sources.named:
            arm = resolved.arms[label] if resolved is not None else None
            identity = arm.identity if arm else self._identities.get(label)
            agent = agent_of_arm(arm.setup) if arm else self._request.agent
            ref = reader_of(identity, None)
            if agent is not None and (ref is None or not arm):
                with suppress(AssayError):
                    ref = reader_of(identity, agent)
            if ref is None:
                self.notes.append(f"{label}: how its streams are read is not known; give -s")
            version = plugins.adapter(ref).reader_version if ref and ref.name != "text" else "1"
            runs.append(
                {
                    "label": label,
                    "rows": f"{ROWS}{part_name(label)}.jsonl",
                    "file": path.name,
                    "reader": None if ref is None else {"ref": ref, "version": version},
                    "identity": identity,
                }
            )
        plan: dict[str, Any] = {
            "runs": runs,
            "promptsDigest": _digest([self._prompts[id_].decode() for id_ in ids]),
            "gradersDigest": _digest([versions, sorted(self._seen_versions())]),
            "trials": {label: self._planned(label) for label, _ in sources.named},
            "versions": {
                "assay": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
            },
            "assurance": "self-attested",
            "registration": self._registration(),
        }
        plan |= self._reproduced()
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plan))
        return self._shown(found)

    def _registration(self) -> dict[str, str] | None:
        folder = self._sources.folder
        found = read_registration(folder)[0] if folder is not None else None
        return None if found is None else {"registered": found.registered, "digest": found.digest}

    def _shown(self, plan: dict[str, Any]) -> dict[str, Any]:
        if self.redactor.shows_texts:
            return plan
        shown: dict[str, Any] = self.redactor.document(plan, self._hidden)
        return shown

    def _seen_versions(self) -> set[tuple[str, str]]:
        return {
            (name, version)
            for identity in self._identities.values()
            for name, version in identity.graders.items()
        }

    def _planned(self, label: str) -> dict[str, int]:
        """How many trials of each prompt there are."""
        found: dict[str, int] = {}
        for leaf in self._leaves:
            if leaf.run == label:
                found[leaf.id] = found.get(leaf.id, 0) + 1
        return dict(sorted(found.items()))

    def _reproduced(self) -> dict[str, Any]:
        if self._request.reproduces is None:
            return {}
        data = self._request.reproduces.read_bytes()
        return {"assurance": "reproduced", "reproduces": hashlib.sha256(data).hexdigest()}

    def _report(self, named: Named, margin: float, seed: int) -> None:
        """Pack the report; it is made of the rows as they are shown."""
        folder = self._sources.folder
        if folder is not None and not self.redactor and (folder / "report.html").is_file():
            self._add("report.html", (folder / "report.html").read_bytes())
            return
        epoch = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
        shown = [OpenRun(label, Index(path, "category", keep=False)) for label, path in named]
        path = self._scratch / "report.html"
        try:
            for run in shown:
                run.index.refresh()
            title = " · ".join(label for label, _ in named)
            options = CompareOptions(margin=margin, seed=seed, now=epoch)
            with path.open("wb") as out:
                write_bundle(out, overview(title, shown, options), shown)
        finally:
            for run in shown:
                run.index.close()
        self._add("report.html", path.read_bytes())

    def _add(self, name: str, data: bytes) -> None:
        self._refuse_secrets(data, name)
        self._parts[name] = self.writer.add(name, [data])

    def _checked(self, blocks: Iterable[bytes], where: str) -> Iterator[bytes]:
        """Yield what may be written; a secret may lie across two blocks."""
        before = b""
        for block in blocks:
            self._refuse_secrets(before + block, where)
            before = block[-_LONGEST_SECRET:]
            yield block

    def _refuse_secrets(self, data: bytes, where: str) -> None:
        found = _SECRETS.search(data)
        kind = f"{found[0][:8].decode()}…" if found else ""
        if not kind and self._secrets.longest and self._secrets.occur_in(data):
            kind = "the value of one of your variables"
        if kind:
            msg = f"{where}: it has a secret in it ({kind}); nothing was written"
            hint = "take it out of what is packed, or withhold it, as with --redact outputs,raw"
            raise InputError(msg, hint=hint)


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def _pretty(value: Any) -> bytes:
    data = msgspec.json.encode(value, order="deterministic")
    return msgspec.json.format(data, indent=1) + b"\n"
