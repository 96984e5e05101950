"""An experiment: prompts, graders and the arms that are compared, as experiment.toml has it."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from assay.records.files import short_hash
from assay.records.text import counted_noun, parse_size

VERDICT, RESOLVED, REGISTERED = "verdict.json", "resolved.json", "registered.json"
"""In the folder of a run: of one that has ended, what it is made from, and what was planned before
its first trial."""

RETRIES = 2
"""How often a trial is tried again that says nothing about the agent, before anything is judged."""

type ReuseMode = Literal["all", "check", "none"]
"""What becomes of trials of earlier runs: they count, they count if they still hold, or not."""
type Share = Annotated[float, Meta(ge=0, lt=1)]
type Positive = Annotated[float, Meta(gt=0)]
type Count = Annotated[int, Meta(ge=1)]


class Arm(
    msgspec.Struct, kw_only=True, frozen=True, rename="kebab", omit_defaults=True,
    forbid_unknown_fields=True,
):  # fmt: skip
    """One set-up of an agent. What an arm does not name, it has from the top of the file."""

    agent: str | None = None
    """Name of an adapter (see `assay agents`), or a schema file."""
    simple: str | None = None
    """In place of agent: a command that prints its answer, with {} for the prompt."""
    shell: str | None = None
    """In place of agent: a shell command that prints its answer, with the prompt in $PROMPT."""
    model: str | None = None
    template: str | None = None
    """Folder that is copied into the workspace of each trial."""
    skills: list[str] = []
    """Folders of skills; those of an arm are added to the common ones."""
    instructions: str | None = None
    """File that becomes CLAUDE.md, AGENTS.md or GEMINI.md, as the agent wants it."""
    mcp: str | None = None
    """File with MCP servers (the common mcpServers JSON)."""
    agent_args: list[str] = []
    """Extra arguments for the agent; those of an arm are added to the common ones."""
    env: list[str] = []
    """Names of variables that an isolated agent gets; added to the common ones."""
    max_turns: Count | None = None
    strict: bool | None = None
    """Whether a schema file with unknown keys is refused."""
    share_home: bool | None = None
    """Whether agents use the user's HOME; by default each trial has one of its own, with a copy of
    the agent's login."""
    isolate: bool | None = None
    sandbox: Literal["network", "no-network"] | None = None
    container: str | None = None
    """Image to run the agent in."""
    memory: str | None = None
    """As in 512M or 4G, for all processes of a trial together."""
    cpus: Positive | None = None
    timeout: Positive | None = None
    """For each turn, in milliseconds."""
    trial_timeout: Positive | None = None
    """For all turns of a trial together, in milliseconds."""
    stall: Positive | None = None
    """Longest silence of the agent, in seconds."""

    @property
    def memory_bytes(self) -> int | None:
        return parse_size(self.memory) if self.memory else None


class Experiment(
    Arm, kw_only=True, frozen=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """experiment.toml: what is compared on what; keys of an arm at the top are common to all."""

    name: str = ""
    """Names the folder of its runs; by default the file or its folder does."""
    prompts: str | None = None
    """File of prompts, relative to this file like every path here."""
    benchmark: str | None = None
    """In place of prompts: an installed benchmark, as in NAME or NAME:OPTIONS."""
    graders: list[str] = []
    """Files and built-in graders."""
    grader_timeout: Positive = 60.0
    """In seconds."""
    k: Count | None = None
    """Trials of each prompt in each arm."""
    until: Literal["decided", "k"] | None = None
    """decided ends the run as soon as the verdict is sure; the default if there is a budget."""
    budget: Annotated[float, Meta(ge=0)] | None = None
    """In US dollars, for all arms together."""
    effect: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    """The smallest difference in pass rate that until = "decided" must find or rule out."""
    margin: Share = 0.02
    """Of a run with all trials: a smaller difference in pass rate counts as none."""
    seed: Annotated[int, Meta(ge=0)] = 20_260_101
    concurrency: Count | None = None
    retries: Annotated[int, Meta(ge=0)] = RETRIES
    filter: list[str] = []
    limit: Count | None = None
    holdout: Share = 0.0
    """Share of the prompts that are kept for confirmations, and not run otherwise."""
    confirm_prompts: str | None = None
    """In place of holdout: a file of other prompts for confirmations."""
    register: bool = False
    """Whether the plan is signed and written down before the first trial; no earlier trial is used
    then."""
    control: str = ""
    """The arm that the others are compared with; by default the first."""
    arms: dict[str, Arm]

    @property
    def common(self) -> Arm:
        """What all arms have that do not name it themselves."""
        return Arm(**{field: getattr(self, field) for field in Arm.__struct_fields__})

    @property
    def treatments(self) -> list[str]:
        """The names of all arms but the control."""
        return [name for name in self.arms if name != self.control]

    @property
    def is_sequential(self) -> bool:
        """Whether the run ends as soon as it is decided."""
        return self.until == "decided" or (self.until is None and self.budget is not None)

    @property
    def digest(self) -> str:
        """Fingerprint of what is compared on what; how fast and for how much does not count."""
        arms = {name: self.resolved(name) for name in sorted(self.arms)}
        parts = (self.prompts, self.benchmark, self.graders, self.filter, self.limit)
        held = (self.holdout, self.confirm_prompts) if self.holdout or self.confirm_prompts else ()
        made_of = (*parts, self.k, self.margin, self.effect, self.control, arms, *held)
        return short_hash(msgspec.json.encode(made_of, order="deterministic"))

    def resolved(self, name: str) -> Arm:
        """Return an arm with all that is common."""
        own, common = self.arms[name], self.common
        # An agent of another kind replaces the common one, whichever way it is named.
        ways = ("agent", "simple", "shell")
        if any(getattr(own, way) for way in ways):
            common = msgspec.structs.replace(common, agent=None, simple=None, shell=None)
        values: dict[str, Any] = {}
        for field in Arm.__struct_fields__:
            mine, shared = getattr(own, field), getattr(common, field)
            if isinstance(mine, list):
                both = [*shared, *mine]  # of arguments, the same word may come twice
                values[field] = both if field == "agent_args" else list(dict.fromkeys(both))
            else:
                values[field] = shared if mine is None else mine
        return Arm(**values)


class EditLook(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One verdict about one version of a treatment."""

    run: str
    """The folder of the run, in the folder of the experiment."""
    ended: str
    edit: str
    """Digest of what the arm has and the control has not."""
    code: str
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    """Ends of the interval of the difference."""
    is_confirmation: bool = False
    question: str = ""
    """Digest of the prompts and the graders."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a verdict stands among those before it."""

    edit: int
    """Its number among the different versions that were looked at, from 1 on."""
    looks: list[EditLook] = []
    """The earlier verdicts, oldest first."""
    is_confirmation: bool = False
    confirmed: str | None = None
    """When an earlier run confirmed this very version."""

    n_tries: int = 0
    """Earlier verdicts about other versions, other trials or other questions."""
    n_failed: int = 0
    """Earlier confirmations of this version that did not show it to help."""
    n_refuted: int = 0
    """Earlier confirmations of other versions that did not."""
    was_shown: bool = False
    """Whether an earlier run of this version showed it to help."""

    @property
    def is_unseen(self) -> bool:
        """Whether a confirmation comes before anything is there to confirm: whoever confirms each
        of twenty versions without a look has looked at twenty."""
        return self.is_confirmation and bool(self.looks) and not self.was_shown

    def code(self, code: str) -> str:
        """Return the verdict about the arm, given what this run alone shows."""
        if code != "better":
            return code
        if self.is_confirmation:
            return "promising" if self.n_failed or self.is_unseen else "confirmed"
        return "promising" if self.n_tries and self.confirmed is None else code

    @property
    def words(self) -> str:
        """Say which look this is; nothing for the first."""
        if self.is_confirmation and self.n_failed:
            return f"{counted_noun(self.n_failed, 'earlier confirmation')} did not confirm it"
        if self.is_unseen:
            return "no earlier run showed it; --confirm --fresh runs both arms once more"
        if self.is_confirmation:
            others = counted_noun(self.n_refuted, "other version")
            but = f"; {others} could not be confirmed" if self.n_refuted else ""
            return f"both arms were run anew to confirm it{but}"
        if self.confirmed is not None:
            return f"it was confirmed on {self.confirmed[:10]}"
        return f"edit {self.edit} against this control" if self.n_tries else ""
