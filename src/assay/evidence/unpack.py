"""Bundles where files of rows are expected, and trials that their owner reveals."""

import hashlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.evidence.redact import Openings, digests_in, openings_path
from assay.evidence.verify import Verification
from assay.records.bundle import (
    OPENINGS,
    REVEALED,
    Bundle,
    BundleWriter,
    Damaged,
    Leaf,
    part_name,
)
from assay.records.files import replaced_file
from assay.records.rows import read_lines
from assay.records.trial.files import entries_of, number_of

_MOST_OPENINGS = 1 << 30


def unpack_runs(path: Path, folder: Path, *, raw: bool) -> list[tuple[str, Path]]:
    """Write the rows of a bundle's runs into a folder, with their raw streams if wanted.

    Rows that are not those of the manifest are refused; nothing else is verified.
    """
    with Bundle(path) as bundle:
        found = Verification(bundle, folder / "as-packed")
        if any(run.rows not in bundle.manifest.parts for run in found.plan.runs):
            msg = f"{path}: the manifest does not list the rows of a run"
            raise Damaged(msg)
        return [
            (run.label, _unpack(found, run.label, folder / part_name(run.label), raw=raw))
            for run in found.plan.runs
            if _is_whole(bundle, run.rows)
        ]


def _is_whole(bundle: Bundle, name: str) -> bool:
    total = hashlib.sha256()
    for block in bundle.blocks(name):
        total.update(block)
    if total.hexdigest() != bundle.manifest.parts[name].sha256:
        msg = f"{bundle.path}: {name} is not what the manifest says"
        raise Damaged(msg, hint=f"see: assay evidence verify {bundle.path}")
    return True


def _unpack(found: Verification, label: str, folder: Path, *, raw: bool) -> Path:
    rows = found.rows[label]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{part_name(label)}.jsonl"
    with target.open("wb") as out:
        for _, line in read_lines(rows):
            row = found.openings.restored(msgspec.json.decode(line))
            for entry in entries_of(row):
                key = (label, str(row.get("id")), number_of(entry))
                leaf = found.leaves.get(key)
                if "raw" in entry:
                    del entry["raw"]
                if leaf is not None and raw:
                    _streams(found, leaf, entry, folder, target.stem)
            out.write(msgspec.json.encode(row) + b"\n")
    return target


def _streams(
    found: Verification, leaf: Leaf, entry: dict[str, Any], folder: Path, stem: str
) -> None:
    """Write the streams of a trial where its row then says that they are."""
    name = f"{stem}.raw/{part_name(leaf.id)}-trial-{leaf.trial}"
    for stream in found.streams(leaf) or ():
        is_log = stream.name.startswith("log/")
        place = folder / (stream.name.removeprefix("log/") if is_log else f"{name}/{stream.name}")
        if not place.resolve().is_relative_to(folder.resolve()):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(stream.content)
        if not is_log:
            entry["raw"] = name


def reveal(path: Path, trials: Sequence[str], output: Path, private: Path | None) -> list[str]:
    """Show trials of a bundle that withholds them; return which. The signature stays as it is."""
    kept = private or openings_path(path)
    if not kept.is_file():
        msg = f"{kept}: the withheld texts are not there"
        hint = "`assay evidence pack --redact` has written them beside the bundle, for its owner"
        raise InputError(msg, hint=hint)
    with Bundle(path) as bundle, _Private(kept) as owner:
        found = Verification(bundle, output)  # which is not written to
        leaves = [leaf for leaf in bundle.manifest.leaves if _is_chosen(leaf, trials)]
        if not leaves:
            msg = f"{path}: no trial is called {trials[0]!r}"
            hint = "give the id of a prompt, or RUN:ID#NUMBER; * stands for anything"
            raise InputError(msg, hint=hint)
        openings = found.openings
        texts = {digest: owner.texts.texts[digest] for digest in _texts_of(found, leaves)
                 if digest in owner.texts.texts}  # fmt: skip
        streams = {
            one.digest: owner.texts.streams[one.digest]
            for leaf in leaves
            for one in leaf.streams
            if not one.part and one.digest in owner.texts.streams
        }
        if not texts and not streams:
            msg = f"{kept}: it has nothing that these trials withhold"
            raise InputError(msg)
        shown = Openings({**openings.texts, **texts}, {**openings.streams, **streams})
        with replaced_file(output) as file:
            _rewrite(bundle, BundleWriter(file), shown, owner, streams)
    return [f"{leaf.run}:{leaf.id}#{leaf.trial}" for leaf in leaves]


def _rewrite(
    bundle: Bundle, writer: BundleWriter, shown: Openings, owner: "_Private", new: dict[str, str]
) -> None:
    for name in bundle.entries:
        if name != OPENINGS and name.removeprefix(REVEALED) not in new:
            writer.copy(bundle, name)
    data = msgspec.json.encode(shown, order="deterministic")
    writer.add(OPENINGS, [data], store=True)
    for digest in sorted(new):
        writer.add(f"{REVEALED}{digest}", owner.stream(digest), store=True)
    writer.close()


def _texts_of(found: Verification, leaves: Sequence[Leaf]) -> set[str]:
    """Return the digests in the rows of these trials, with what is said of their prompts."""
    wanted = {(leaf.run, leaf.id, leaf.trial) for leaf in leaves}
    digests: set[str] = set()
    for run in found.plan.runs:
        for line in found.bundle.read(run.rows).splitlines():
            if not line.strip():
                continue
            row = msgspec.json.decode(line)
            own = [one for one in entries_of(row)
                   if (run.label, str(row.get("id")), number_of(one)) in wanted]  # fmt: skip
            if own:
                shared = {key: value for key, value in row.items() if key != "trials"}
                digests |= digests_in([shared, own])
    return digests


def _is_chosen(leaf: Leaf, trials: Sequence[str]) -> bool:
    own = (leaf.id, f"{leaf.id}#{leaf.trial}")
    names = (*own, *(f"{leaf.run}:{name}" for name in own))
    return any(fnmatchcase(name, wanted) for name in names for wanted in trials)


class _Private:
    """What the owner of a bundle keeps."""

    def __init__(self, path: Path) -> None:
        self._bundle = Bundle(path, is_evidence=False)
        self.texts: Openings = self._bundle.json("openings.json", Openings, _MOST_OPENINGS)

    def __enter__(self) -> "_Private":
        return self

    def __exit__(self, *error: object) -> None:
        self._bundle.__exit__(*error)

    def stream(self, digest: str) -> Iterator[bytes]:
        """Yield a raw stream that was withheld."""
        return self._bundle.blocks(f"streams/{digest}")
