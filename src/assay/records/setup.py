"""Whether a trial had the set-up that was asked for: MCP servers, skills, plugins, model, rights.

An agent says in its start event what it really has (`setup`); `identity` says what it was given.
Where the two differ, the trial measured another set-up, whatever its grade says.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from assay.records.capture import Identity
from assay.records.text import counted_noun
from assay.records.trial import Trial
from assay.records.trial.views import NO_JSON, SetupView

_UP = frozenset({"connected", "ready", "pending"})
"""What agents say of a server that works, or that may still be starting."""
_DOWN = {
    "failed": "failed to start",
    "needs-auth": "needs authentication",
    "missing": "was given but is not listed by the agent",
    "unknown": "may have failed to start",
}
_PERMISSIVE = frozenset({"bypassPermissions", "yolo"})
"""Permission modes that allow everything: what is denied in them, a rule of the user denies."""
_MODES = ("permissionMode", "approvalMode", "approval")
# A skill in the working folder, in a folder above it, or in the home. Below the working folder
# agents look for skills only when they work there, so that the start event cannot list them.
_SKILL_FILE = r"(?:/.*/|(?:(?:~|\.\.)/)*)(\.[a-z]+)/skills?/([^/]+)/SKILL\.md"
_SKILL_FOLDERS = {"claude": (".claude",)}
_LONGEST_NAME = 100
CHANGED_FILES = "changedFiles"
"""In the set-up of a trial: code of the agent's that was edited while the run went on."""
WIRE = "wireDiffers"
"""In the set-up of a trial: what the agent says of its model and a proxy saw quite otherwise."""
REPLAYED = "replayed"
"""With what an identity says that answers came from a tape."""
REPLAYED_WORDS = "replayed: this checks the harness, not the agent,"
_MOST_REMEMBERED = 10_000
type Problems = tuple[str, ...]


class TreatmentUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """In how many trials something was used that one arm has and the control has not."""

    arm: str
    kind: str
    """skill, mcp, instructions or model."""
    name: str
    used: int
    """Trials of the arm whose steps show it."""
    trials: int
    in_control: int = 0
    control_trials: int = 0


class ArmsProof(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the arms of an experiment differ in what they should, and in nothing else."""

    words: list[str]
    """For each arm how it differs from the control."""
    valid: bool = True
    reasons: list[str] = []
    """Why no verdict is valid."""
    uses: list[TreatmentUse] = []
    """Of each arm, how often what it has was used; nothing where steps cannot show it."""

    @property
    def verdict(self) -> str:
        """What stands in place of a verdict that is not valid."""
        return "" if self.valid else f"INVALID ({'; '.join(self.reasons)})"


def setup_problems(setup: Any, identity: Any, model: Any, denials: Any) -> Problems:
    """Name what the agent lacked, each as the beginning of "... in 3 of 12 trials".

    All of it comes from a row that another program may have written: any type is survived.
    """
    had = setup if isinstance(setup, dict) else {}
    given = identity if isinstance(identity, dict) else {}
    found = [
        *_replayed(given),
        *_servers(had, given),
        *_skills(had, given),
        *_plugins(had),
        *_changed(had),
        *_model(had, given, model),
        *_permissions(had, given, denials),
        *_wire(had),
    ]
    return tuple(dict.fromkeys(found))


def problems_of(row: Trial, asked: Identity) -> Problems:
    """The same for a row that was just made; asked stands in where it has no identity yet."""
    model = (row.agent.model or None) if row.agent else None
    if not row.setup and model is None and not row.permission_denials:
        return ()  # the agent says nothing about itself
    identity = msgspec.to_builtins(row.identity or asked)
    return setup_problems(row.setup or None, identity, model, row.permission_denials or 0)


class SetupReader:
    """Looks at undecoded rows; most are alike in this, so that each kind is judged only once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[bytes, bytes, str | None, bool], Problems] = {}

    def problems(
        self, setup: msgspec.Raw, identity: msgspec.Raw, model: str | None, denials: int
    ) -> Problems:
        key = (bytes(setup), bytes(identity), model, denials > 0)
        known = self._seen.get(key)
        if known is None:
            if len(self._seen) >= _MOST_REMEMBERED:
                self._seen.clear()
            known = setup_problems(_decoded(key[0]), _decoded(key[1]), model, denials)
            self._seen[key] = known
        return known

    def problems_in(self, row: SetupView) -> Problems:
        """Look at a row of which no field has been decoded."""
        if row.setup is NO_JSON and row.identity is NO_JSON:
            return ()
        agent, denials = _decoded(bytes(row.agent)), _decoded(bytes(row.permission_denials))
        model = agent.get("model") if isinstance(agent, dict) else None
        return self.problems(
            row.setup,
            row.identity,
            model if isinstance(model, str) else None,
            denials if isinstance(denials, int) else 0,
        )


def counted(problem: str, n: int, total: int) -> str:
    """Say in how many trials it was."""
    return f"{problem} in {n} of {counted_noun(total, 'trial')}"


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _replayed(given: dict[str, Any]) -> Iterator[str]:
    tape = given.get("tape")
    if isinstance(tape, str) and tape.startswith(REPLAYED):
        yield REPLAYED_WORDS


def _wire(had: dict[str, Any]) -> Iterator[str]:
    names = had.get(WIRE)
    for name in names if isinstance(names, list) else ():
        if words := _WIRE_WORDS.get(str(name)):
            yield words


_WIRE_WORDS = {
    "inputTokens": "the agent counts other input tokens than its provider (more than 2 % apart)",
    "outputTokens": "the agent counts other output tokens than its provider (more than 2 % apart)",
    "model": "the agent names another model than the one that was asked",
}


def _servers(had: dict[str, Any], given: dict[str, Any]) -> Iterator[str]:
    listed = had.get("mcpServers")
    if not isinstance(listed, list):
        return
    if not listed and given.get("mcp"):
        yield "the agent lists no MCP server although --mcp was given"
    for server in listed:
        if not isinstance(server, dict):
            continue
        status = str(server.get("status"))[:_LONGEST_NAME]
        if status not in _UP:
            words = _DOWN.get(status) or f"was not connected (status {_quoted(status)})"
            yield f"MCP server {_quoted(server.get('name'))} {words}"


def _skills(had: dict[str, Any], given: dict[str, Any]) -> Iterator[str]:
    listed, offered = had.get("skills"), given.get("offered")
    if not isinstance(listed, list) or not isinstance(offered, dict):
        return
    # A plugin's skill is listed as plugin:skill.
    names = {name.rpartition(":")[2] for name in listed if isinstance(name, str)}
    folders = _SKILL_FOLDERS.get(str(given.get("adapter")))
    for path in offered:
        match = re.fullmatch(_SKILL_FILE, path)
        if match and (folders is None or match[1] in folders) and match[2] not in names:
            yield f"skill {_quoted(match[2])} was offered but is not listed by the agent"


def _plugins(had: dict[str, Any]) -> Iterator[str]:
    errors = had.get("pluginErrors")
    for error in errors if isinstance(errors, list) else ():
        if isinstance(error, dict):
            yield f"plugin {_quoted(error.get('name'))} did not load"


def _changed(had: dict[str, Any]) -> Iterator[str]:
    files = had.get(CHANGED_FILES)
    for name in files if isinstance(files, list) else ():
        yield f"{_quoted(name)}, which the agent loads, was changed during the run"


def _model(had: dict[str, Any], given: dict[str, Any], model: Any) -> Iterator[str]:
    asked, used = given.get("model"), had.get("answeredBy") or model
    if isinstance(asked, str) and isinstance(used, str) and is_another_model(asked, used):
        yield f"model {_quoted(used)} was used instead of {_quoted(asked)}"


def _permissions(had: dict[str, Any], given: dict[str, Any], denials: Any) -> Iterator[str]:
    if not isinstance(denials, int | float) or denials <= 0:
        return
    mode = next((had[name] for name in _MODES if isinstance(had.get(name), str)), None)
    if mode is not None and mode not in _PERMISSIVE:
        yield f"permission mode {_quoted(mode)} denied tool calls"
    elif mode is None and given.get("adapter") == "opencode":  # it names no mode
        yield "a permission rule denied tool calls"


# What does not change which model it is: dates, tags, the length of the context.
_NEUTRAL = r"20\d{6}|latest|preview|exp|beta|thinking|v\d+|\d+m|\d+k"
_VARIANTS = frozenset({
    "opus", "sonnet", "haiku", "pro", "flash", "lite", "max", "mini", "nano", "micro", "codex",
    "small", "medium", "large", "turbo", "spark", "fast", "instant", "ultra", "plus",
})  # fmt: skip
"""Words that tell the models of one family and version apart."""
_WORD = r"[a-z]+|\d+[a-z]*"


def is_another_model(asked: str, used: str) -> bool:
    """Whether the model used is surely not the one asked for, however each is spelled.

    "opus" may be any version of it, and "claude-opus-4-1" with a date, a provider before it or a
    region is the same model. A word such as "auto" or "default" leaves the choice to the agent.
    """
    wanted, found = _words(asked), _words(used)
    if not wanted or not found or asked.lower().startswith("arn:"):
        return False
    missing = set(wanted) & _VARIANTS - set(found)
    if len(wanted) == 1 and wanted[0].isalpha():
        # A user may map an alias to a model of any name: only a sibling is surely another.
        return bool(missing) and bool(set(found) & _VARIANTS)
    shorter, longer = sorted((wanted, found), key=len)
    if not _is_within(shorter, longer):
        return True
    return bool((set(longer) - set(shorter)) & _VARIANTS)


def _words(model: str) -> list[str]:
    name = model.lower().partition("#")[0].rpartition("/")[2]
    # Numbers stand apart from words in some spellings only: gpt5 is gpt-5.
    return [word for word in re.findall(_WORD, name) if not re.fullmatch(_NEUTRAL, word)]


def _is_within(shorter: list[str], longer: list[str]) -> bool:
    """Whether all words of one come in the other in the same order."""
    rest = iter(longer)
    return all(word in rest for word in shorter)


def _quoted(name: Any) -> str:
    text = name if isinstance(name, str) else str(name)
    return f'"{text[:_LONGEST_NAME]}"'
