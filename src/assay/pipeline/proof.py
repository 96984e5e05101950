"""The proof of the arms: that each had its treatment, the control had not, and nothing else
differs. It rests on what the agents themselves said when they started, and on the files that they
were offered."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.adapters.vendor import known_agent
from assay.pipeline.experiment import Difference, differences
from assay.pipeline.material import SKILL_FILE, read_skill, skill_body
from assay.records.capture import Identity, ToolCall
from assay.records.experiment import Arm
from assay.records.files import hash_file, hash_folder
from assay.records.setup import ArmsProof, TreatmentUse, counted, is_another_model, setup_problems
from assay.records.skills import skills_used
from assay.records.trial import Trial

_SKILL_PATH = re.compile(r"(?:^|.*/)skills?/([^/]+)/SKILL\.md")
_FREE = frozenset({"agent", "agent-args", "env", "template", "isolate", "sandbox", "container"})
"""What may change anything about an agent: tools and rights that differ then need no reason."""
_LOADED = {
    "loads": "what the agent loads",
    "packages": "the packages that the agent imports",
    "variables": "the variables that the agent gets",
    "mcp_files": "what MCP servers load",
}
_INSTRUCTIONS = ("CLAUDE.md", "AGENTS.md", "GEMINI.md")
_MODES = ("permissionMode", "approvalMode", "approval", "sandbox")


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A skill, a file or a folder that an arm names, as it was when the run began."""

    name: str
    hash: str
    body: str = ""
    """Of a skill: hash of what stands below the head of its SKILL.md."""


def read_piece(path: Path) -> Piece:
    """Read what an arm names, a skill, another folder or a file."""
    if (path / SKILL_FILE).is_file():
        name = read_skill(path).name
        return Piece(name=name, hash=hash_folder(path), body=skill_body(path))
    return Piece(name=path.name, hash=hash_folder(path) if path.is_dir() else hash_file(path))


class ArmFacts(msgspec.Struct, kw_only=True):
    """What one arm was given, and what its agent said that it had."""

    name: str
    arm: Arm
    identity: Identity
    by_prompt: dict[str, Identity] = {}
    """Of prompts that bring a workspace of their own, which the arm's material is put into."""
    servers: frozenset[str] = frozenset()
    """Names in its MCP file."""
    pieces: dict[str, Piece] = {}
    """What all arms name, by its path."""
    bodies: dict[str, str] = {}
    """Hash of the body of each skill that the agent can read, by the hash of its folder."""
    after: dict[str, Identity] = {}
    """Of prompts that change the workspace before the agent starts: what a trial left there."""
    n_trials: int = 0
    models: set[str] = msgspec.field(default_factory=set)
    versions: set[str] = msgspec.field(default_factory=set)
    modes: set[str] = msgspec.field(default_factory=set)
    listed: dict[str, list[frozenset[str]]] = msgspec.field(default_factory=dict)
    """Of each trial that lists them: tools, skills and mcpServers by name."""
    called: list[frozenset[str]] = msgspec.field(default_factory=list)
    """Of each trial: the tools that were called."""
    loaded: dict[str, int] = msgspec.field(default_factory=dict)
    """In how many trials each skill was loaded."""
    read: dict[str, int] = msgspec.field(default_factory=dict)
    """In how many trials a step names each file of instructions."""
    answered: list[str] = msgspec.field(default_factory=list)
    """Of each trial that says it: the model that answered."""
    problems: dict[str, int] = msgspec.field(default_factory=dict)
    """What the agent lacked of what it was given, and in how many trials."""

    def always(self, what: str) -> frozenset[str]:
        """Names that every trial lists."""
        sets = self.listed.get(what)
        return frozenset.intersection(*sets) if sets else frozenset()

    def names_in_any(self, what: str) -> frozenset[str]:
        """Names that any trial lists."""
        return frozenset().union(*self.listed.get(what, ()))

    @property
    def offered_skills(self) -> list[tuple[str, str, str]]:
        """Path, name and hash of each skill among the files that the agent can read."""
        return list(skills_in(self.identity))


def skills_in(identity: Identity) -> Iterator[tuple[str, str, str]]:
    """Yield path, name and hash of each skill that an agent was offered."""
    for path, value in identity.offered.items():
        if match := _SKILL_PATH.fullmatch(path):
            yield path, match[1], value


def gather(facts: ArmFacts, trials: Iterable[Trial]) -> ArmFacts:
    """Read the trials of an arm; return the same facts."""
    shared = msgspec.to_builtins(facts.identity)
    own = {id_: msgspec.to_builtins(identity) for id_, identity in facts.by_prompt.items()}
    for entry in trials:
        plain = own.get(entry.id, shared)
        facts.n_trials += 1
        setup = entry.setup or {}
        agent = entry.agent or None
        model = setup.get("answeredBy") or (agent.model if agent else None)
        if model:
            facts.models.add(str(model))
            facts.answered.append(str(model))
        if agent and agent.version:
            facts.versions.add(agent.version)
        mode = " ".join(str(setup[key]) for key in _MODES if setup.get(key))
        if mode:
            facts.modes.add(mode)
        for what, names in _listed(setup):
            facts.listed.setdefault(what, []).append(frozenset(names))
        _note_use(facts, [step for step in entry.trajectory if isinstance(step, ToolCall)])
        used = agent.model if agent and agent.model else None
        for problem in setup_problems(setup, plain, used, entry.permission_denials or 0):
            facts.problems[problem] = facts.problems.get(problem, 0) + 1
    return facts


def _note_use(facts: ArmFacts, calls: list[ToolCall]) -> None:
    """Count what the steps of a trial used."""
    facts.called.append(frozenset(call.name for call in calls))
    for use in skills_used(calls):
        facts.loaded[use.skill] = facts.loaded.get(use.skill, 0) + 1
    inputs = [str(call.input) for call in calls if call.status not in ("failed", "error")]
    for name in _INSTRUCTIONS:
        if any(name in given for given in inputs):
            facts.read[name] = facts.read.get(name, 0) + 1


def _listed(setup: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for what in ("tools", "skills", "mcpServers"):
        listed = setup.get(what)
        if isinstance(listed, list):
            names = [one.get("name") if isinstance(one, dict) else one for one in listed]
            yield what, [name for name in names if isinstance(name, str)]


def prove(control: ArmFacts, arms: Sequence[ArmFacts]) -> ArmsProof:
    """Compare each arm with the control; the first reason why not is the most telling."""
    words, reasons = [], []
    for arm in arms:
        names = {path: piece.name for path, piece in arm.pieces.items()}
        asked = differences(control.arm, arm.arm, names)
        said = ", ".join(_with_hash(one, arm, control) for one in asked) or "nothing"
        found = [
            reason
            for pair in _variants(control, arm)
            for reason in (*_treatments(asked, *pair), *_unasked(asked, *pair))
        ]
        found += _changed_by_prompts(asked, control, arm)
        reasons += found
        rest = "nothing else" if not found else "and more than that, or less (see below)"
        who = "arms differ" if len(arms) == 1 else f"{arm.name} differs from {control.name}"
        also = _with_model(asked, control, arm)
        words.append(f"{who} in: {said}{also}, {rest}" if asked else f"{who} in nothing")
        if not asked:
            reasons.append(f"{arm.name} and {control.name} are the same set-up")
    for facts in (control, *arms):
        reasons += _inside(facts)
    uses = [use for arm in arms for use in _uses(control, arm)]
    reasons = list(dict.fromkeys(reasons))
    return ArmsProof(words=words, valid=not reasons, reasons=reasons, uses=uses)


def _uses(control: ArmFacts, arm: ArmFacts) -> Iterator[TreatmentUse]:
    """Yield how often each treatment was used, in the arm and in the control.

    A skill whose versions are compared is used in both on purpose: only the arm is counted.
    """
    names = {path: piece.name for path, piece in arm.pieces.items()}
    for asked in differences(control.arm, arm.arm, names):
        if not asked.value or not arm.n_trials:
            continue
        counted_by = _COUNTS.get(asked.kind)
        for name, count in counted_by(asked, control, arm) if counted_by else ():
            is_new = not asked.control
            yield TreatmentUse(
                arm=arm.name,
                kind=asked.kind,
                name=name,
                used=count(arm),
                trials=len(arm.answered) if asked.kind == "model" else arm.n_trials,
                in_control=count(control) if is_new else 0,
                control_trials=control.n_trials if is_new else 0,
            )


type _Count = Callable[[ArmFacts], int]
_SHOW_CALLS = ("acp", "demo")
"""Besides those of vendors: agents that show every call of a tool."""


def _shows_steps(*arms: ArmFacts) -> bool:
    """Whether steps can show at all what an agent uses: some agents only print an answer."""
    names = [arm.identity.adapter for arm in arms]
    known = all(name in _SHOW_CALLS or known_agent(name) for name in names)
    return known or any(any(arm.called) for arm in arms)


def _count_skill(
    asked: Difference, control: ArmFacts, arm: ArmFacts
) -> Iterator[tuple[str, _Count]]:
    if _shows_steps(control, arm):
        name = arm.pieces[asked.value].name
        yield name, lambda facts: facts.loaded.get(name, 0)


def _count_servers(
    asked: Difference, control: ArmFacts, arm: ArmFacts
) -> Iterator[tuple[str, _Count]]:
    for name in sorted(arm.servers - control.servers) if _shows_steps(control, arm) else ():
        yield (
            name,
            lambda facts, name=name: sum(  # type: ignore[misc]
                any(_is_of(tool, name) for tool in called) for called in facts.called
            ),
        )


def _count_instructions(
    asked: Difference, control: ArmFacts, arm: ArmFacts
) -> Iterator[tuple[str, _Count]]:
    """Agents that are known read their instructions at the start, which no step shows."""
    piece = arm.pieces[asked.value]
    places = {path for path, value in arm.identity.offered.items() if value == piece.hash}
    known = known_agent(arm.identity.adapter)
    if known and not known.acp:
        yield piece.name, lambda facts: facts.n_trials if facts is arm and places else 0
        return
    files = {Path(place).name for place in places}
    if n_read := max((arm.read.get(name, 0) for name in files), default=0):
        yield piece.name, lambda facts: n_read if facts is arm else 0


def _count_model(
    asked: Difference, control: ArmFacts, arm: ArmFacts
) -> Iterator[tuple[str, _Count]]:
    if arm.answered:
        yield (
            asked.value,
            lambda facts: sum(not is_another_model(asked.value, used) for used in facts.answered),
        )


_COUNTS = {
    "skill": _count_skill,
    "mcp": _count_servers,
    "instructions": _count_instructions,
    "model": _count_model,
}


def _variants(control: ArmFacts, arm: ArmFacts) -> Iterator[tuple[ArmFacts, ArmFacts]]:
    """Yield both arms with each pair of identities that some prompt was run with."""
    seen: list[tuple[Identity, Identity]] = [(control.identity, arm.identity)]
    for prompt_id in control.by_prompt.keys() | arm.by_prompt.keys():
        one = control.by_prompt.get(prompt_id, control.identity)
        other = arm.by_prompt.get(prompt_id, arm.identity)
        if (one, other) not in seen:
            seen.append((one, other))
    for one, other in seen:
        yield (
            msgspec.structs.replace(control, identity=one),
            msgspec.structs.replace(arm, identity=other),
        )


def _changed_by_prompts(asked: list[Difference], control: ArmFacts, arm: ArmFacts) -> Iterator[str]:
    """Yield treatments that the files or the set-up of a prompt brought or took away.

    The agent may have written to its workspace since: only what it cannot have done counts.
    """
    skills = [one for one in asked if one.kind == "skill"]
    given = [one for one in asked if one.kind == "instructions"]
    for prompt_id in control.after.keys() & arm.after.keys():
        pair = (
            msgspec.structs.replace(control, identity=control.after[prompt_id]),
            msgspec.structs.replace(arm, identity=arm.after[prompt_id]),
        )
        reasons = [*_treatments(skills, *pair)]
        reasons += [one for one in _treatments(given, *pair) if " has the treatment: " in one]
        for reason in reasons[:1]:
            yield f"{reason}, by the files or the set-up of prompt {prompt_id}"
            return


def _with_hash(asked: Difference, arm: ArmFacts, control: ArmFacts) -> str:
    """Say what differs, with the hash of the content where it is a file."""
    if asked.kind not in ("skill", "instructions", "template", "mcp"):
        return asked.words
    path = asked.value or asked.control
    plain = msgspec.structs.replace(asked, value=path, control="")
    name = f"skill {arm.pieces[path].name}" if asked.kind == "skill" else plain.words
    if asked.value and asked.control:
        hashes = f"{_hash(asked, asked.value, arm)}; control {_hash(asked, asked.control, control)}"
        return f"{name} ({hashes})"
    only = "" if asked.value else f", only in {control.name}"
    return f"{name} ({_hash(asked, path, arm if asked.value else control)}{only})"


def _hash(asked: Difference, path: str, who: ArmFacts) -> str:
    return who.identity.mcp if asked.kind == "mcp" else who.pieces[path].hash


def _treatments(asked: list[Difference], control: ArmFacts, arm: ArmFacts) -> Iterator[str]:
    """Yield what is missing in the arm that should have it, or present in the other."""
    for one in asked:
        if one.kind in ("skill", "instructions"):
            pieces = [arm.pieces[path] if path else None for path in (one.control, one.value)]
            check = _skill if one.kind == "skill" else _instructions
            if pieces[0] and pieces[1] and pieces[0].hash == pieces[1].hash:
                yield f"the {one.kind} of {control.name} and {arm.name} have the same content"
                continue
            yield from check(pieces[1], pieces[0], arm, control)
            yield from check(pieces[0], pieces[1], control, arm)
        elif one.kind == "mcp":
            yield from _servers(arm.servers - control.servers, arm, control)
            yield from _servers(control.servers - arm.servers, control, arm)
        elif one.kind == "template" and control.identity.template == arm.identity.template:
            yield f"the templates of {control.name} and {arm.name} have the same content"
        elif one.kind == "model":
            yield from _models(control, arm)


def _skill(
    own: Piece | None, instead: Piece | None, has: ArmFacts, lacks: ArmFacts
) -> Iterator[str]:
    """Check a skill of one arm, in whose place the other may have another version."""
    if own is None:
        return
    name = own.name
    offered = {value for _, key, value in has.offered_skills if key == name}
    if own.hash not in offered and own.body not in {has.bodies.get(value) for value in offered}:
        yield f"{has.name} lacks its treatment: its agent is not offered the skill {name}"
    sets = has.listed.get("skills", [])
    n_without = sum(name not in _short(names) for names in sets)
    if n_without:
        missing = counted(f"its agent does not list the skill {name}", n_without, len(sets))
        yield f"{has.name} lacks its treatment: {missing}"
    if where := next(_copies(own, instead, lacks), ""):
        yield f"{lacks.name} has the treatment: its agent can read the skill {name} ({where})"
    elif instead is None and name in _short(lacks.names_in_any("skills")):
        yield f"{lacks.name} has the treatment: its agent lists the skill {name}"


def _copies(own: Piece, instead: Piece | None, lacks: ArmFacts) -> Iterator[str]:
    """Yield where an arm can read a skill that it should not have, under whatever name."""
    # A new description above the same body is another version of the skill, and no copy of it.
    by_body = own.body and not (instead and instead.body == own.body)
    for path, name, value in lacks.offered_skills:
        body = lacks.bodies.get(value)
        # Running a skill's scripts may leave files in its folder, which change its hash.
        if instead and name == instead.name and value != own.hash and body == instead.body:
            continue
        same = by_body and body == own.body
        if name == own.name or value == own.hash or same:
            yield path


def _short(names: Iterable[str]) -> set[str]:
    """Names of skills; one of a plugin is listed as plugin:skill."""
    return {name.rpartition(":")[2] for name in names}


def _instructions(
    own: Piece | None, _: Piece | None, has: ArmFacts, lacks: ArmFacts
) -> Iterator[str]:
    if own is None:
        return
    if own.hash not in has.identity.offered.values():
        yield f"{has.name} lacks its treatment: its agent does not read {own.name}"
    same = [path for path, value in lacks.identity.offered.items() if value == own.hash]
    if same:
        yield f"{lacks.name} has the treatment: {same[0]} has the content of {own.name}"


def _servers(names: Iterable[str], has: ArmFacts, lacks: ArmFacts) -> Iterator[str]:
    for name in sorted(names):
        sets = has.listed.get("mcpServers", [])
        n_without = sum(name not in listed for listed in sets)
        if n_without:
            missing = counted(
                f"its agent does not list the MCP server {name}", n_without, len(sets)
            )
            yield f"{has.name} lacks its treatment: {missing}"
        called = frozenset().union(*lacks.called)
        tools = {tool for tool in (*lacks.names_in_any("tools"), *called) if _is_of(tool, name)}
        if name in lacks.names_in_any("mcpServers"):
            yield f"{lacks.name} has the treatment: its agent lists the MCP server {name}"
        elif tools:
            yield f"{lacks.name} has the treatment: its agent has the tool {min(tools)}"


def _is_of(tool: str, server: str) -> bool:
    """Whether a tool is one of an MCP server; agents spell it with _, __ or a dot between."""
    plain = re.sub(r"[^a-z0-9]+", "_", tool.lower().removeprefix("mcp__").removeprefix("mcp_"))
    return plain.startswith(re.sub(r"[^a-z0-9]+", "_", server.lower()) + "_")


def _models(control: ArmFacts, arm: ArmFacts) -> Iterator[str]:
    for facts in (control, arm):
        asked = facts.arm.model
        for used in sorted(facts.models):
            if asked and is_another_model(asked, used):
                yield f"{facts.name} lacks its treatment: {used} answered instead of {asked}"
    same = control.models & arm.models
    if same and control.arm.agent == arm.arm.agent:
        yield f"both {control.name} and {arm.name} used the model {min(same)}"


def _unasked(asked: list[Difference], control: ArmFacts, arm: ArmFacts) -> Iterator[str]:
    """Yield differences that nobody asked for."""
    kinds = {one.kind for one in asked}
    if "agent" in kinds:
        return
    both = f"{control.name} and {arm.name}"
    if control.versions and arm.versions and control.versions != arm.versions:
        yield f"{both} used different versions of the agent: {_both(control, arm, 'versions')}"
    elif control.identity.program != arm.identity.program:
        yield f"{both} would start different versions of the agent"
    # An agent that chooses a model for each task may have used others in each trial of both arms.
    if "model" not in kinds and control.models and arm.models and not control.models & arm.models:
        yield f"{both} used different models: {_both(control, arm, 'models')}"
    if kinds & _FREE:
        return
    yield from _unasked_files(asked, control, arm)
    if control.modes and arm.modes and control.modes != arm.modes:
        yield f"{both} had different permissions: {_both(control, arm, 'modes')}"
    for what, word in (("tools", "tool"), ("skills", "skill"), ("mcpServers", "MCP server")):
        if what != "tools" or "model" not in kinds:
            is_asked = _asked_names(asked, arm, control)
            for has, name in _unasked_names(what, is_asked, (control, arm)):
                yield f"only {has} has the {word} {name}, which was not asked for"


def _with_model(asked: list[Difference], control: ArmFacts, arm: ArmFacts) -> str:
    """Say which tools came or went with a model: Claude Code offers some to some models only."""
    if "model" not in {one.kind for one in asked} or "agent" in {one.kind for one in asked}:
        return ""
    names: dict[str, list[str]] = {}
    for has, name in _unasked_names("tools", _asked_names(asked, arm, control), (control, arm)):
        names.setdefault(has, []).append(name)
    found = [f"{', '.join(tools)} only in {has}" for has, tools in names.items()]
    return f", and with it the agent's tools ({'; '.join(found)})" if found else ""


def _both(control: ArmFacts, arm: ArmFacts, what: str) -> str:
    return "; ".join(
        f"{one.name} {', '.join(sorted(getattr(one, what)))}" for one in (control, arm)
    )


def _asked_names(asked: list[Difference], *arms: ArmFacts) -> Callable[[str, str], bool]:
    """Return a function that says whether a name may differ between the arms."""
    skills = _asked_skills(asked, arms[0])
    servers = arms[0].servers ^ arms[1].servers
    if any(one.kind == "mcp" for one in asked):
        servers |= arms[0].servers | arms[1].servers  # the same name, but another server

    def is_asked(what: str, name: str) -> bool:
        if what == "tools":
            # Some agents have a tool for skills, or for MCP resources, only where there are any.
            by_skill = bool(skills) and "skill" in name.lower()
            by_server = bool(servers) and "mcp" in name.lower()
            return by_skill or by_server or any(_is_of(name, server) for server in servers)
        return name.rpartition(":")[2] in skills if what == "skills" else name in servers

    return is_asked


def _asked_skills(asked: list[Difference], arm: ArmFacts) -> set[str]:
    return {arm.pieces[one.value or one.control].name for one in asked if one.kind == "skill"}


def _unasked_names(
    what: str, is_asked: Callable[[str, str], bool], arms: tuple[ArmFacts, ArmFacts]
) -> Iterator[tuple[str, str]]:
    """Yield an arm, and a name that each of its trials lists and no trial of the other does."""
    if not all(arm.listed.get(what) for arm in arms):
        return
    for has, lacks in (arms, arms[::-1]):
        for name in sorted(has.always(what) - lacks.names_in_any(what)):
            if not is_asked(what, name):
                yield has.name, name


def _unasked_files(asked: list[Difference], control: ArmFacts, arm: ArmFacts) -> Iterator[str]:
    is_free = any(one.kind == "mcp" for one in asked)
    for field, words in _LOADED.items():
        if not is_free and getattr(control.identity, field) != getattr(arm.identity, field):
            yield f"{control.name} and {arm.name} differ in {words}, which was not asked for"
    skills = _asked_skills(asked, arm)
    contents = {
        arm.pieces[path].hash
        for one in asked
        if one.kind == "instructions"
        for path in (one.value, one.control)
        if path
    }
    old, new = control.identity.offered, arm.identity.offered
    for path in sorted({*old, *new}):
        if old.get(path) == new.get(path):
            continue
        match = _SKILL_PATH.fullmatch(path)
        if (match and match[1] in skills) or {old.get(path), new.get(path)} & contents:
            continue
        yield f"{control.name} and {arm.name} differ in {path}, which was not asked for"


def _inside(facts: ArmFacts) -> Iterator[str]:
    """Yield what is wrong within one arm: lacking set-up, or an agent that changed on the way."""
    for problem, n in facts.problems.items():
        yield f"{facts.name}: {counted(problem, n, facts.n_trials)}"
    if len(facts.versions) > 1:
        seen = ", ".join(sorted(facts.versions))
        yield f"{facts.name}: the agent changed during the run, versions {seen}"
