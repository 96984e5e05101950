"""Run an experiment: prepare its arms, try one trial of each, run the rest, and give a verdict."""

import datetime
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from assay import __version__, plugins
from assay.cli.batch import debug_trace, prompt_file
from assay.cli.options import CaptureOptions, agent_ref, findable, grader_refs, setting
from assay.cli.output import open_sink, whole_output
from assay.cli.parameters import Size
from assay.cli.progress import Progress
from assay.errors import InputError, Interrupted, OutputError
from assay.pipeline.arms import REUSED, ArmRows, EarlierTrials, arm_key, entries_in, interleave
from assay.pipeline.batch import Batch, check_startable, run_batch
from assay.pipeline.experiment import Arm, Experiment, differences, hash_inputs, hash_path
from assay.pipeline.material import Material, compose, read_skill
from assay.pipeline.prompts import Setting, choose, folder_names, plan, read_prompts
from assay.pipeline.proof import ArmFacts, gather, prove
from assay.pipeline.resume import Resume
from assay.pipeline.row_settings import RowSettings, prompt_folder
from assay.pipeline.stages import CaptureTrial, freeze
from assay.pipeline.trials import TrialRows
from assay.plugin import PromptRow
from assay.records.capture import Identity, TrialEntry
from assay.records.files import short_hash, temporary_folder
from assay.records.setup import ArmsProof
from assay.records.spec import PluginRef, TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.report.experiment import (
    Effort,
    effort_words,
    look_first,
    money,
    sentence,
    span,
    verdict_code,
)
from assay.run.workspace import frozen_template, private_root

if TYPE_CHECKING:
    from assay.pipeline.until import UntilAllDecided, UntilDecided
    from assay.stats.sequential import SequentialDecision

type Decisions = "dict[str, SequentialDecision]"
"""What a sequential rule decided about each arm, by name; nothing if all trials were run."""
VERDICT, RESOLVED, REPORT = "verdict.json", "resolved.json", "report.html"
_INVALID = 4
_DEFAULT_K = 5
_LONGEST_PATH = 1000


class HowToRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about a run, besides what is compared."""

    root: Path
    """The folder of all experiments."""
    file: Path | None
    """Where the experiment was read from."""
    base: CaptureOptions
    """Options that all arms share."""
    smoke: bool
    fresh: bool
    yes: bool
    """Go on although the estimate passes the budget."""
    digest: str
    """Of the experiment as its file has it."""
    factors: tuple[str, ...] = ()
    """Names of the treatments of --ablate."""
    leaderboard: bool = False

    @property
    def talks(self) -> bool:
        return not self.base.quiet and not self.base.as_json


class ReadyArm(msgspec.Struct, frozen=True, kw_only=True):
    """An arm whose agent and material were found."""

    name: str
    arm: Arm
    setting: Setting
    template: Path
    """The composed template, copied into the workspace of each trial."""
    rows: list[PromptRow]
    """The prompts, with the arm's material in the workspaces that they bring."""
    own: RowSettings
    """What the rows of the prompts ask for."""
    output: Path = Path()
    specs: list[TrialSpec] = []

    @property
    def identities(self) -> dict[str, Identity | None]:
        """Of prompts whose rows ask for something of their own."""
        made = {prompt.id: self.own.of(prompt).identity for prompt, _ in self.rows}
        return {id_: one for id_, one in made.items() if one is not self.setting.identity}

    @property
    def servers(self) -> list[str]:
        given = self.setting.agent.options.get("mcp") or {}
        return list(given.get("mcpServers", given))

    @property
    def entries(self) -> list[TrialEntry]:
        """All trials that are on disk."""
        return [entry for _, entry in entries_in(self.output)]


def run_experiment(experiment: Experiment, how: HowToRun) -> int:
    """Run all that is missing; return the exit code."""
    try:
        with temporary_folder("assay-arms-") as scratch:
            return _Run(experiment, how, Path(scratch)).execute()
    except (KeyboardInterrupt, Interrupted):
        click.echo("Interrupted. Every finished trial is saved; run the same command again to "
                   "go on.", err=True)  # fmt: skip
        return 130


class _Run:
    """One run of an experiment, in a folder of its own."""

    def __init__(self, experiment: Experiment, how: HowToRun, scratch: Path) -> None:
        self._experiment, self._how = experiment, how
        self._began_s = time.monotonic()
        benchmark = _benchmark(experiment)
        self._graders = _graders(experiment, benchmark)
        rows = _prompts(experiment, benchmark)
        self._k = experiment.k or _DEFAULT_K
        ready = _ready(experiment, how.base, rows, self._graders, scratch)
        _check_graded(experiment, rows, self._graders)
        self.folder = _folder(how, experiment, _run_id(experiment, self._k, ready, rows))
        self._token = _token(self.folder)
        self.arms = [self._placed(arm, rows) for arm in ready]
        self._by_key = {arm_key(arm.specs[0]): arm for arm in self.arms}
        self._specs = interleave([arm.specs for arm in self.arms], experiment.seed)
        self._n_reused: dict[str, int] = {}
        self._left_usd = experiment.budget
        is_local = how.base.executor == "local"
        check_startable(self._specs, how.base.concurrency, here=is_local)

    def _placed(self, ready: ReadyArm, rows: list[PromptRow]) -> ReadyArm:
        """Say where an arm works and writes. Its agent must not learn from a path which it is."""
        output = self.folder / f"{ready.name}.jsonl"
        own, raw = _token(output), output.with_suffix(".raw")
        root = private_root()
        around = msgspec.structs.replace(
            ready.setting.surroundings,
            workspace_dir=str(root / own),
            workspace_template=str(root / f"template-{own}"),
            replace=True,
            raw_dir=str(raw.resolve()),
            raw_prefix=raw.name,
            ours=(str(self.folder.resolve()),),
        )
        shared = msgspec.structs.replace(ready.setting, surroundings=around, run_token=self._token)
        # Templates of rows are copied under the token of the arm, processes marked by the run's.
        mine = msgspec.structs.replace(shared, run_token=own)
        settings = _row_settings(mine, self._experiment, self._graders, ready.rows)
        names = folder_names(prompt.id for prompt, _ in rows)
        specs = [
            msgspec.structs.replace(spec, run_token=self._token)
            for spec in plan(rows, names, shared, self._k, settings.of)
        ]
        return msgspec.structs.replace(
            ready, setting=shared, own=settings, output=output, specs=specs
        )

    def execute(self) -> int:
        """Check, run, judge and write; return the exit code."""
        freeze([*self._graders, *self.arms[0].own.graders])
        self._write_resolved()
        self._say_plan()
        if known := self._decided_earlier():
            return self._conclude(self._proof(), known)
        self._run(self._specs[: len(self.arms)], "smoke")
        proof = self._proof()
        self._check_smoke()
        if not proof.valid:
            return self._conclude(proof, {})
        self._say_estimate()
        if self._how.smoke:
            click.echo(f"{'; '.join(proof.words)}. The smoke trials went well.")
            return 0
        decisions = self._run_all()
        return self._conclude(self._proof(), decisions)

    def _run_all(self) -> "Decisions":
        """Run the rest, or until it is decided; return what was decided about each arm."""
        if not self._is_sequential():
            self._run(self._specs, "all")
            return {}
        from assay.pipeline.until import UntilAllDecided  # late: numpy

        rules = {key: self._rule(key) for key in list(self._by_key)[1:]}
        self._run(self._specs, "all", UntilAllDecided(rules, arm_key))
        return {self._by_key[key].name: rule.finish() for key, rule in rules.items()}

    def _is_sequential(self) -> bool:
        from assay.stats.sequential import FEWEST_UNITS  # late: numpy

        if self._how.factors or self._how.leaderboard:
            return False  # effects and ranks rest on all arms alike
        wanted, n_prompts = self._experiment.is_sequential, len(self.arms[0].specs) // self._k
        if wanted and n_prompts < FEWEST_UNITS:
            few = counted_noun(n_prompts, "prompt")
            self._say(f"{few}: fewer than {FEWEST_UNITS} decide nothing early, so all trials run.")
            return False
        return wanted

    def _rule(self, key: str) -> "UntilDecided":
        """The comparison of one arm with the control."""
        from assay.pipeline.until import UntilDecided, has_passed  # late: numpy
        from assay.stats.sequential import decide_effect

        def decide(seen: Any, bounds: Any, is_last: bool) -> "SequentialDecision":
            effect, n_judged = self._experiment.effect, len(self.arms) - 1
            return decide_effect(
                seen, effect=effect, is_last=is_last, bounds=bounds, n_judged=n_judged
            )

        def earlier() -> Iterator[tuple[int, str, bool | None]]:
            for number, arm in enumerate((self.arms[0], self._by_key[key])):
                for prompt_id, entry in entries_in(arm.output):
                    yield number, prompt_id, has_passed(entry)

        def arm_of(spec: TrialSpec) -> int:
            return int(arm_key(spec) == key)

        return UntilDecided(decide, earlier=earlier, arm_of=arm_of, keep_order=True)

    def _decided_earlier(self) -> "Decisions":
        """What an earlier run of this command decided; a second look at the same trials must not
        change it."""
        if not self._experiment.is_sequential:
            return {}
        from assay.stats.sequential import SequentialDecision  # late: numpy

        kind = dict[str, SequentialDecision]
        try:
            known = msgspec.json.decode((self.folder / VERDICT).read_bytes())
            found = msgspec.convert(known.get("decisions", {}), kind)
        except (OSError, msgspec.MsgspecError):
            return {}
        same = known.get("effect") == self._experiment.effect
        return found if found and same and all(d.is_decided for d in found.values()) else {}

    def _say_plan(self) -> None:
        control, *others = self.arms
        for arm in others:
            asked = ", ".join(one.words for one in differences(control.arm, arm.arm))
            self._say(f"{arm.name} against {control.name}: {asked or 'no difference'}")
        n_prompts = len(self.arms[0].specs) // self._k
        each = f"{counted_noun(n_prompts, 'prompt')} x {self._k} trials x {len(self.arms)} arms"
        self._say(f"{each} = {len(self._specs)} trials, in {self.folder}")

    def _say(self, text: str) -> None:
        if self._how.talks:
            click.echo(visible_line(text), err=True)

    def _run(
        self, specs: list[TrialSpec], what: str, stopper: "UntilAllDecided | None" = None
    ) -> None:
        """Run those of some trials that are missing; stopper may end it early."""
        base = self._how.base
        earlier = None if self._how.fresh else EarlierTrials(self._how.root, self.folder)
        work = CaptureTrial(self._graders, self._experiment.retries, debug_trace(base))
        resume = Resume(k=self._k, graders=self._graders)
        with ExitStack() as stack:
            rows = {}
            for key, arm in self._by_key.items():
                sink = stack.enter_context(
                    open_sink(arm.output, "resume", kind="trials", resume=resume)
                )
                rows[key] = stack.enter_context(TrialRows(sink, arm.output, "resume", resume))
            into = ArmRows(rows, earlier)
            batch = Batch(
                specs=specs,
                run_token=self._token,
                resume=True,
                workers=base.concurrency,
                max_cost=self._budget_left(),
                rate_per_s=base.rate,
            )
            show = partial(self._show, what=what)
            run_batch(batch, work, into, show, self._place(), stopper)
            for each in rows.values():
                each.settle()
            for source, n in into.n_reused.items():
                self._n_reused[source] = self._n_reused.get(source, 0) + n

    def _budget_left(self) -> float | None:
        budget = self._experiment.budget
        return None if budget is None else max(0.0, budget - (self._cost() or 0.0))

    def _cost(self) -> float | None:
        """What the trials of this run cost; None if no agent says it."""
        own = [entry for arm in self.arms for entry in arm.entries if not _is_reused(entry)]
        known = [entry.usage.spent_usd for entry in own if entry.usage and entry.usage.cost_usd]
        return sum(known) if known else None

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Freeze the templates of all arms for as long as trials run."""
        with ExitStack() as stack:
            for arm in self.arms:
                copy = arm.setting.surroundings.workspace_template or ""
                stack.enter_context(frozen_template(str(arm.template), copy))
                stack.enter_context(arm.own.templates())
            yield

    def _show(self, missing: list[TrialSpec], what: str) -> Progress:
        base = self._how.base
        plain = base.progress or base.debug
        shown = Progress(len(missing), plain=plain, quiet=base.quiet, as_json=base.as_json)
        shown.expect([spec.prompt.id for spec in missing], each=self._k)
        if missing and what == "smoke":
            self._say(f"Smoke: {counted_noun(len(missing), 'trial')}, which count.")
        return shown

    def _facts(self) -> list[ArmFacts]:
        found = []
        for arm in self.arms:
            identity = arm.setting.identity
            assert identity is not None
            facts = ArmFacts(
                name=arm.name,
                arm=arm.arm,
                identity=identity,
                by_prompt={id_: one for id_, one in arm.identities.items() if one is not None},
                servers=frozenset(arm.servers),
            )
            found.append(gather(facts, entries_in(arm.output)))
        return found

    def _proof(self) -> ArmsProof:
        control, *others = self._facts()
        return prove(control, others)

    def _check_smoke(self) -> None:
        """Stop before money is spent on arms that cannot measure anything."""
        for arm in self.arms:
            entries = arm.entries
            failures = [entry.failure for entry in entries if entry.failure]
            if not entries:
                msg = f"arm {arm.name}: its first trial was not run: the budget is spent"
                raise InputError(msg, hint="raise the budget")
            broken = [failure for failure in failures if not failure.cause.measures_agent]
            if broken and len(broken) == len(entries):
                first = broken[0]
                msg = f"arm {arm.name}: {first.cause}: {first.message}"
                raise InputError(msg, hint=_remedy(str(first.cause), arm))

    def _say_estimate(self) -> None:
        """Say what the rest will take; refuse what passes the budget unless somebody agrees."""
        cost, seconds = 0.0, 0.0
        known = True
        for arm in self.arms:
            entries = arm.entries
            n_left = len(arm.specs) - len(entries)
            costs = [e.usage.cost_usd for e in entries if e.usage and e.usage.cost_usd]
            known = known and bool(costs)
            cost += n_left * (sum(costs) / len(costs) if costs else 0.0)
            seconds += n_left * sum(e.duration for e in entries) / max(len(entries), 1) / 1000
        n_left = len(self._specs) - sum(len(arm.entries) for arm in self.arms)
        if not n_left:
            return
        price = f"about {money(cost)}" if known else "cost unknown"
        left = span(seconds / self._how.base.concurrency)
        self._say(f"Estimate for {counted_noun(n_left, 'more trial')}: {price}, about {left}.")
        budget = self._budget_left()
        if budget is not None and known and cost > budget and not self._how.smoke:
            self._ask_to_pass(cost, budget)

    def _ask_to_pass(self, cost: float, budget: float) -> None:
        words = f"the estimate of {money(cost)} passes the {money(budget)} left in the budget"
        if self._how.yes:
            self._say(f"{words}; no trial is started once it is spent.")
            return
        if "CI" not in os.environ and sys.stdin.isatty() and sys.stderr.isatty():
            if click.confirm(f"{words[:1].upper()}{words[1:]}. Run until it is spent?", err=True):
                return
            raise click.exceptions.Exit(1)
        hint = "raise the budget, lower -k or --limit, or use --yes to run until it is spent"
        raise InputError(words, hint=hint)

    def _conclude(self, proof: ArmsProof, decisions: "Decisions") -> int:
        """Compare the arms, write verdict and report, print the sentence."""
        from assay.cli.verdict import effect_lines, judge_arms, rank_lines  # late: numpy

        spent, named = self._effort(), [(arm.name, arm.output) for arm in self.arms]
        pairs = judge_arms(
            named,
            proof,
            margin=self._experiment.margin,
            seed=self._experiment.seed,
            folder=self.folder,
            title=self._experiment.name,
            decisions=decisions,
        )
        told = _Told(
            proof=proof,
            pairs=[pair for pair in pairs if pair["runA"] == self._experiment.control],
            spent=spent,
            decisions=decisions,
            margin=self._experiment.effect if decisions else self._experiment.margin,
        )
        if self._how.factors:
            lines = effect_lines(named, self._how.factors, self._experiment.seed)
            told = msgspec.structs.replace(told, instead=[*lines, effort_words(spent)])
        elif self._how.leaderboard:
            lines = rank_lines(named)
            told = msgspec.structs.replace(told, instead=[*lines, effort_words(spent)])
        self._write_verdict(told)
        self._say_verdict(told)
        return 0 if proof.valid else _INVALID

    def _effort(self) -> Effort:
        entries = [entry for arm in self.arms for entry in arm.entries]
        n_reused = sum(map(_is_reused, entries))
        seconds = time.monotonic() - self._began_s
        own_s = sum(e.duration for e in entries if not _is_reused(e)) / 1000
        return Effort(
            n_trials=len(entries),
            n_planned=len(self._specs),
            n_reused=n_reused,
            cost_usd=self._cost(),
            # A run that was interrupted took longer than this process.
            seconds=max(seconds, own_s / self._how.base.concurrency),
        )

    def _say_verdict(self, told: "_Told") -> None:
        if not self._how.talks:
            return
        proof, spent = told.proof, told.spent
        for source, n in sorted(self._n_reused.items()):
            click.echo(f"{counted_noun(n, 'trial')} reused from {source}")
        for line in proof.words:
            click.echo(visible_line(line))
        if not proof.valid:
            click.echo("INVALID: no verdict, because")
            for reason in proof.reasons:
                click.echo(f"  {visible_line(reason)}")
            click.echo(f"{effort_words(spent)}. Report: {self.folder / REPORT}")
            return
        for words in told.sentences:
            click.echo(visible_line(words))
        click.echo(f"Report: {self.folder / REPORT}")
        click.echo(visible_line(look_first(told.pairs, proof.reasons)))
        undecided = not told.decisions or not all(d.is_decided for d in told.decisions.values())
        if spent.n_trials < spent.n_planned and undecided:
            self._say("The same command with a higher budget runs the rest.")

    def _write_resolved(self) -> None:
        """Write what the run is made from; the arms in it are complete."""
        experiment = self._experiment
        resolved = {
            "assay": __version__,
            "experiment": experiment,
            "file": str(self._how.file) if self._how.file else None,
            "arms": {
                arm.name: {"setup": arm.arm, "identity": arm.setting.identity} for arm in self.arms
            },
            "inputs": self._inputs(),
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"cannot make {self.folder}: {error.strerror}"
            raise OutputError(msg, hint="choose another folder with -o") from error
        self._write(RESOLVED, resolved)

    def _write_verdict(self, told: "_Told") -> None:
        proof = told.proof
        verdict = {
            "name": self._experiment.name,
            "valid": proof.valid,
            "verdicts": told.codes,
            "sentences": told.sentences if proof.valid else [proof.verdict],
            "proof": proof,
            "effort": told.spent,
            "reused": self._n_reused,
            "effect": self._experiment.effect,
            "decisions": told.decisions,
            "pairs": told.pairs,
            "file": str(self._how.file) if self._how.file else None,
            "experiment": self._how.digest,
            "inputs": self._inputs(),
        }
        self._write(VERDICT, verdict)

    def _inputs(self) -> dict[str, str]:
        """Hash the user's files that the verdict is about, also those that prompts name."""
        folder, found = Path(self._experiment.prompts or "").parent, []
        for spec in self.arms[0].specs:
            prompt = spec.prompt
            found += [prompt.workspace or "", *prompt.graders]
        paths = {str(folder / name) for name in found if name and len(name) < _LONGEST_PATH}
        named = {path: hash_path(Path(path)) for path in sorted(paths)}
        return hash_inputs(self._experiment) | {path: h for path, h in named.items() if h}

    def _write(self, name: str, content: Any) -> None:
        text = msgspec.json.format(msgspec.json.encode(content), indent=2)
        with whole_output(self.folder / name, overwrite=True) as out:
            out.write(text + b"\n")


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has found, for the file and for the terminal."""

    proof: ArmsProof
    pairs: list[dict[str, Any]]
    """The comparison of each arm with the control, as in the report."""
    spent: Effort
    decisions: "Decisions"
    margin: float
    instead: list[str] = []
    """What is said in place of a sentence about each arm."""

    @property
    def codes(self) -> dict[str, str]:
        """The verdict about each arm, as a program reads it."""
        if not self.proof.valid:
            return {pair["runB"]: "invalid" for pair in self.pairs}
        return {pair["runB"]: verdict_code(pair, self._of(pair)) for pair in self.pairs}

    @property
    def sentences(self) -> list[str]:
        said = [sentence(pair, self._of(pair), self.spent, self.margin) for pair in self.pairs]
        return self.instead or said

    def _of(self, pair: dict[str, Any]) -> "SequentialDecision | None":
        return self.decisions.get(pair["runB"])


def _is_reused(entry: TrialEntry) -> bool:
    return REUSED in (entry.metadata or {})


def _remedy(cause: str, arm: ReadyArm) -> str:
    from assay.adapters.vendor import known_agent  # late: only for a failure

    known = known_agent(arm.setting.agent.name)
    if cause == "auth":
        where = " and pass its key with env" if arm.setting.surroundings.own_home else ""
        return (known.login if known else "check its API key") + where
    if cause == "spawn" and known:
        return known.install
    return "nothing more was started; run the same command again when it is mended"


def _benchmark(experiment: Experiment) -> PluginRef:
    if experiment.benchmark is not None:
        return plugins.benchmark_ref(experiment.benchmark)
    return prompt_file([experiment.prompts or ""], from_stdin=False)


def _graders(experiment: Experiment, benchmark: PluginRef) -> list[PluginRef]:
    theirs = list(plugins.benchmark(benchmark).graders())
    for ref in theirs:
        plugins.grader(ref)
    return [*theirs, *grader_refs(experiment.graders, experiment.grader_timeout)]


def _prompts(experiment: Experiment, benchmark: PluginRef) -> list[PromptRow]:
    rows = choose(read_prompts(benchmark), experiment.filter, experiment.limit)
    if not rows:
        where = experiment.prompts or f"benchmark {experiment.benchmark}"
        msg = f"{where}: no prompts{' that match the filter' if experiment.filter else ''}"
        raise InputError(msg)
    return rows


def _check_graded(
    experiment: Experiment, rows: Sequence[PromptRow], graders: Sequence[PluginRef]
) -> None:
    without = [prompt.id for prompt, _ in rows if not (prompt.graders or prompt.expect)]
    if not graders and without:
        msg = f"{experiment.prompts}: no grader judges the prompt {without[0]!r}"
        raise InputError(msg, hint="name graders in the experiment, with -g, or in each prompt")


def _row_settings(
    shared: Setting,
    experiment: Experiment,
    graders: Sequence[PluginRef],
    rows: Sequence[PromptRow],
) -> RowSettings:
    own = RowSettings(shared, graders, experiment.grader_timeout, findable)
    own.take(rows, graded=True)
    return own


def _with_material(
    rows: Sequence[PromptRow], agent: PluginRef, material: Material, folder: Path, scratch: Path
) -> list[PromptRow]:
    """Put the material of an arm into copies of the workspaces that prompts bring."""
    made: dict[str, str] = {}
    found = []
    for prompt, extra in rows:
        if prompt.workspace is not None and (folder / prompt.workspace).is_dir():
            if prompt.workspace not in made:
                copy = made[prompt.workspace] = f"{scratch}-{len(made)}"
                source = folder / prompt.workspace
                compose(agent, msgspec.structs.replace(material, template=source), Path(copy))
            prompt = msgspec.structs.replace(prompt, workspace=made[prompt.workspace])
        found.append((prompt, extra))
    return found


def _ready(
    experiment: Experiment,
    base: CaptureOptions,
    rows: Sequence[PromptRow],
    graders: Sequence[PluginRef],
    scratch: Path,
) -> list[ReadyArm]:
    """Find agent and material of each arm, the control first; refuse what cannot work."""
    found, benchmark = [], _benchmark(experiment)
    for number, name in enumerate((experiment.control, *experiment.treatments)):
        arm, template = experiment.resolved(name), scratch / str(number)
        options = _arm_options(base, arm)
        agent = agent_ref(options)
        material = Material(
            template=Path(arm.template) if arm.template else None,
            skills=tuple(read_skill(Path(skill)) for skill in arm.skills),
            instructions=Path(arm.instructions) if arm.instructions else None,
        )
        compose(agent, material, template)
        options = msgspec.structs.replace(options, workspace_template=template)
        shared = setting(options, agent, benchmark, graders, keep_raw=False)
        own_rows = _with_material(rows, agent, material, prompt_folder(benchmark), template)
        settings = _row_settings(shared, experiment, graders, own_rows)
        found.append(
            ReadyArm(
                name=name,
                arm=arm,
                setting=shared,
                template=template,
                rows=own_rows,
                own=settings,
            )
        )
    return found


def _arm_options(base: CaptureOptions, arm: Arm) -> CaptureOptions:
    """Return the options of `assay trials` that an arm stands for."""
    return msgspec.structs.replace(
        base,
        schema=arm.agent,
        simple=arm.simple,
        shell=arm.shell,
        model=arm.model,
        agent_args=tuple(arm.agent_args),
        mcp=Path(arm.mcp) if arm.mcp else None,
        max_turns=arm.max_turns,
        env_names=tuple(arm.env),
        isolate=bool(arm.isolate),
        sandbox=arm.sandbox,
        container=arm.container,
        memory=Size().convert(arm.memory, None, None) if arm.memory else None,
        cpus=arm.cpus,
        timeout=arm.timeout,
        trial_timeout=arm.trial_timeout,
        stall=arm.stall,
    )


def _run_id(
    experiment: Experiment, k: int, arms: Sequence[ReadyArm], rows: Sequence[PromptRow]
) -> str:
    """Name a run by what it measures: another budget continues it, another skill does not."""
    made_of = (
        experiment.control,
        k,
        experiment.seed,
        {arm.name: (arm.setting.identity, arm.identities) for arm in arms},
        [prompt for prompt, _ in rows],
    )
    return short_hash(msgspec.json.encode(made_of, order="deterministic"))[:8]


def _folder(how: HowToRun, experiment: Experiment, run_id: str) -> Path:
    """Return the folder of the run that this command continues, or of a new one."""
    root = how.root / experiment.name
    earlier = sorted(path for path in root.glob(f"*-{run_id}*") if path.is_dir())
    unfinished = [path for path in earlier if not (path / VERDICT).exists()]
    if unfinished:
        return unfinished[-1]
    if earlier and not how.fresh:
        return earlier[-1]
    today = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d")
    again = f"-{len(earlier) + 1}" if earlier else ""
    return root / f"{today}-{run_id}{again}"


def _token(path: Path) -> str:
    # The same for the same run: one that goes on finds the agents that a killed one left behind.
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
