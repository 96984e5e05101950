"""What a prompt's own row asks for: graders, expectations, files, a template, a set-up."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from assay import plugins
from assay.adapters.model import ModelAdapter
from assay.errors import InputError
from assay.graders.judge import NOBODY
from assay.pipeline.agents import with_absolute_paths
from assay.pipeline.identity import identity_in, identity_of_setup, identity_with
from assay.pipeline.prompts import Setting
from assay.plugin import PromptRow
from assay.records.capture import Identity
from assay.records.cases import prompt_lines
from assay.records.rows import UNREADABLE, Place, decode_line, explain
from assay.records.spec import Expect, PluginRef, Prompt, Surroundings, Texts
from assay.records.text import counted_noun, visible_line
from assay.run.workspace import frozen_template, private_root

PURE = frozenset({"exact", "contains", "regex", "numeric", "tools", "skill", "file", "limits"})
"""Built-in graders that start no program and read no file but those of the workspace."""
ANSWER_ONLY = ("contains", "regex")
"""Expectations that an answer alone can meet, without an agent that did something."""


def prompt_folder(benchmark: PluginRef) -> Path:
    """Return the folder from which the paths in the rows of a benchmark are meant."""
    path = benchmark.options.get("path") if benchmark.name == "prompts" else None
    return Path(path).resolve().parent if path else Path.cwd()


def split_judge(graders: Sequence[PluginRef]) -> tuple[list[PluginRef], PluginRef | None]:
    """Return the graders of all trials, and the judge of what prompts state, if one is named.

    That is a judge without a rubric: it is asked about the trials of prompts that state something.
    """
    judges = [ref for ref in graders if ref.name == "judge" and not _has_rubric(ref)]
    if len(judges) > 1:
        msg = "two judges have no rubric; one of them is enough to judge what prompts state"
        raise InputError(msg, hint="give the other one a rubric")
    return [ref for ref in graders if ref not in judges], judges[0] if judges else None


def _has_rubric(ref: PluginRef) -> bool:
    return bool(ref.options.get("rubric") or ref.options.get("criterion"))


def own_graders(
    prompt: Prompt,
    folder: Path,
    timeout_s: float,
    only: Iterable[str] = (),
    judge: PluginRef | None = None,
) -> tuple[PluginRef, ...]:
    """Return the graders of a prompt's row, each checked; only: these expectations and no others.

    judge is asked about what the prompt states. The error names the field.
    """
    found: list[PluginRef] = []
    for number, text in enumerate(prompt.graders):
        with _prefixed(f'"graders[{number}]"'):
            found.append(plugins.grader_ref(text, timeout_s, folder))
    for name, grader, options in expectations(prompt.expect):
        if not only or name in only:
            with _prefixed(f'"expect.{name}"'):
                found.append(plugins.checked_grader(grader, options, timeout_s, folder))
    if prompt.statements and not only:
        found += _judges(prompt.statements, judge)
    return tuple(found)


def _judges(statements: list[str], judge: PluginRef | None) -> list[PluginRef]:
    """Return the judge of a prompt's statements; refuse statements that nobody judges."""
    if judge is None:
        n = counted_noun(len(statements), "statement")
        msg = f'"expect.judge": {n} and no judge, such as: {visible_line(statements[0])[:80]}'
        hint = "name one, as in -g judge:agent=claude; judge:agent=none leaves them open"
        raise InputError(msg, hint=hint)
    if judge.options.get("agent") == NOBODY:
        return []
    options = {"steps": True, **judge.options, "criterion": statements}
    return [plugins.checked_grader("judge", options)]


@contextmanager
def _prefixed(where: str | Callable[[], str]) -> Iterator[None]:
    """Put a place or a field before the message of an error."""
    try:
        yield
    except InputError as error:
        msg = f"{where if isinstance(where, str) else where()}: {error.message}"
        raise InputError(msg, hint=error.hint) from error


def expectations(expect: Expect | None) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the field, the grader and its options for each thing that a prompt expects."""
    if expect is None:
        return
    if expect.contains:
        yield "contains", "contains", {"text": _list(expect.contains)}
    for pattern in _list(expect.regex):
        yield "regex", "regex", {"pattern": pattern}
    if expect.tool:
        yield "tool", "tools", {"used": _list(expect.tool)}
    if expect.no_tool:
        yield "no_tool", "tools", {"not_used": _list(expect.no_tool)}
    if expect.file:
        texts = expect.file if isinstance(expect.file, dict) else {}
        yield "file", "file", {"contains": texts} if texts else {"exists": _list(expect.file)}
    if expect.command:
        yield "command", "command", {"run": expect.command}
    if expect.skill:
        yield "skill", "skill", {"used": _list(expect.skill)}
    if expect.no_skill:
        yield "no_skill", "skill", {"not_used": _list(expect.no_skill)}


def _list(value: Texts | Any | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def fitted_to(
    around: Surroundings, graders: Sequence[PluginRef], user: PluginRef | None = None
) -> Surroundings:
    """Return where agents work, with what these graders and a user want looked at, or hidden."""
    found = [plugins.grader(ref) for ref in graders]
    refs = [*(grader.asks for grader in found), user]
    asked = [plugins.adapter(ref) for ref in refs if ref is not None]
    keys = {model.key for model in asked if isinstance(model, ModelAdapter) and model.key}
    return msgspec.structs.replace(
        around,
        hidden_env=tuple(sorted({*around.hidden_env, *keys})),
        snapshot=around.snapshot or any(grader.wants_snapshot for grader in found),
        repository=around.repository or any(grader.wants_repository for grader in found),
    )


class _PromptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the row of one prompt asks for, as it was read."""

    graders: tuple[PluginRef, ...]
    identity: Identity | None
    needs_workspace: bool
    template: Path | None
    """The folder that its workspaces are made from."""
    user: PluginRef | None = None
    """The model that speaks for its user."""


class RowSettings:
    """The setting of each trial: the shared one, changed as the prompt's row asks.

    All that rows name is read here, before the first agent starts.
    """

    def __init__(
        self,
        shared: Setting,
        rows: Sequence[PromptRow] = (),
        graders: Sequence[PluginRef] | None = None,
        timeout_s: float = 0.0,
        templates: Mapping[str, Path] | None = None,
        judge: PluginRef | None = None,
    ) -> None:
        """graders are those of the run; None means that nothing is graded.

        templates has what takes the place of folders that rows name as their workspace. judge is
        asked about what prompts state.
        """
        self._judge = judge
        self.shared = shared
        self._folder = prompt_folder(shared.benchmark)
        self._templates = templates or {}
        self._made: dict[str, Setting] = {}
        self._asked: dict[str, _PromptSettings] = {}
        for prompt, _ in rows:
            if prompt.graders or prompt.expect or prompt.needs_workspace or prompt.user:
                with _prefixed(partial(_place, shared.benchmark, prompt.id)):
                    self._asked[prompt.id] = self._read(prompt, graders, timeout_s)
        if judge is not None and not any(prompt.statements for prompt, _ in rows):
            msg = "the judge has no rubric, and no prompt states what it should judge"
            raise InputError(msg, hint="for example: -g judge:agent=claude,rubric=rubric.md")

    def placed(self, shared: Setting) -> "RowSettings":
        """Return the same for another place: what the rows ask for is not read again."""
        moved = RowSettings(shared)
        moved._asked, moved._templates = self._asked, self._templates
        return moved

    @property
    def graders(self) -> list[PluginRef]:
        """All graders that rows name."""
        return [ref for asked in self._asked.values() for ref in asked.graders]

    @property
    def n_private(self) -> int:
        """How many prompts have workspaces of their own only because of what their rows ask."""
        if self.shared.surroundings.workspace_dir is not None:
            return 0
        return sum(asked.needs_workspace for asked in self._asked.values())

    @property
    def templates(self) -> dict[str, Path]:
        """The folder that the workspaces of a prompt are made from, for prompts that name one."""
        found = {id_: asked.template for id_, asked in self._asked.items()}
        return {id_: template for id_, template in found.items() if template is not None}

    def of(self, prompt: Prompt) -> Setting:
        """Return the setting of a prompt's trials."""
        asked = self._asked.get(prompt.id)
        if asked is None:
            return self.shared
        if prompt.id not in self._made:
            self._made[prompt.id] = self._setting(asked)
        return self._made[prompt.id]

    @contextmanager
    def frozen_templates(self) -> Iterator[None]:
        """Keep copies of the templates, from which workspaces are made."""
        with ExitStack() as stack:
            for source, copy in self._copies.items():
                stack.enter_context(frozen_template(str(source), copy))
            yield

    @cached_property
    def _copies(self) -> dict[Path, str]:
        """Return each template that rows name, and where it is copied to."""
        sources = dict.fromkeys(template.resolve() for template in self.templates.values())
        start = f"template-{self.shared.run_token}"
        return {
            source: str(private_root() / f"{start}-{number}")
            for number, source in enumerate(sources, 1)
        }

    def _setting(self, asked: _PromptSettings) -> Setting:
        shared, around = self.shared, self.shared.surroundings
        if asked.needs_workspace and around.workspace_dir is None:
            folder = private_root() / shared.run_token
            around = msgspec.structs.replace(around, workspace_dir=str(folder))
        if asked.template is not None:
            copy = self._copies[asked.template.resolve()]
            around = msgspec.structs.replace(around, workspace_template=copy)
        return msgspec.structs.replace(
            shared,
            agent=with_absolute_paths(shared.agent, around),
            surroundings=fitted_to(around, asked.graders, asked.user),
            identity=asked.identity,
            graders=asked.graders,
        )

    def _read(
        self, prompt: Prompt, graders: Sequence[PluginRef] | None, timeout_s: float
    ) -> _PromptSettings:
        shared = self.shared
        own: tuple[PluginRef, ...] = ()
        if graders is not None:
            own = own_graders(prompt, self._folder, timeout_s, judge=self._judge)
        template = self._template(prompt)
        user = prompt.simulated_user.asks if prompt.simulated_user is not None else None
        if user is not None:
            with _prefixed('"user"'):
                plugins.adapter(user)  # refused if its key is missing
        identity = shared.identity
        if identity is not None:
            identity = identity_with(identity, [*(graders or ()), *own])
            around = shared.surroundings
            if (prompt.needs_workspace and around.workspace_dir is None) or template:
                folder = around.workspace_dir or str(private_root() / shared.run_token)
                around = msgspec.structs.replace(around, workspace_dir=folder)
                identity = identity_in(identity, shared.agent, around, template)
            if isinstance(prompt.setup, str):
                identity = identity_of_setup(identity, prompt.setup, self._folder)
        return _PromptSettings(
            graders=own,
            identity=identity,
            needs_workspace=prompt.needs_workspace,
            template=template,
            user=user,
        )

    def _template(self, prompt: Prompt) -> Path | None:
        """Return the folder that a row names as its workspace; refuse what cannot be copied."""
        if prompt.workspace is None:
            return None
        template = self._templates.get(prompt.workspace, self._folder / prompt.workspace)
        if not template.is_dir():
            msg = f'"workspace": {template} is not a folder'
            raise InputError(msg, hint="it is found from the folder of the prompt file")
        _check_files(prompt, template)
        return template


def _check_files(prompt: Prompt, template: Path) -> None:
    """Refuse files below something in the template that is no folder, or a link to one."""
    for path in prompt.files:
        place = template
        for part in path.split("/")[:-1]:
            place /= part
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                what = "a link" if place.is_symlink() else "a file"
                msg = f'"files": {path}: {place.relative_to(template)} is {what} in its workspace'
                raise InputError(msg, hint="choose another path, or make it a folder there")
        if (place := template / path).is_dir() and not place.is_symlink():
            msg = f'"files": {path} is a folder in its workspace'
            raise InputError(msg, hint="choose another path")


def _place(benchmark: PluginRef, prompt_id: str) -> str:
    """Name the line of a prompt; its file is read again, because this is the way of an error."""
    path = benchmark.options.get("path") if benchmark.name == "prompts" else None
    for place, line in prompt_lines(Path(path)) if path else ():
        try:
            if msgspec.json.decode(line).get("id") == prompt_id:
                return place
        except (*UNREADABLE, AttributeError):
            continue
    return f'prompt "{prompt_id}"'


class RowGraders:
    """The graders that the rows of results bring along.

    What a row itself names is used only if it starts no program: results may be other people's.
    Everything else is taken from the prompts that the operator names.
    """

    def __init__(self, timeout_s: float, judge: PluginRef | None = None) -> None:
        """judge is asked about what prompts state; see split_judge."""
        self._timeout_s, self._judge = timeout_s, judge
        self._of_prompt: dict[Any, tuple[PluginRef, ...]] | None = None
        self._of_row: dict[tuple[bytes, bytes], tuple[PluginRef, ...]] = {}

    @property
    def has_judge(self) -> bool:
        """Whether somebody judges what prompts state."""
        return self._judge is not None

    def use_prompts(
        self, benchmark: PluginRef, prompts: Iterable[Prompt], only: Iterable[str] = ()
    ) -> None:
        """Take the graders of these prompts, in place of what rows name; see own_graders."""
        folder = prompt_folder(benchmark)
        self._of_prompt = {}
        for prompt in prompts:
            with _prefixed(partial(_place, benchmark, prompt.id)):
                self._of_prompt[prompt.id] = own_graders(
                    prompt, folder, self._timeout_s, only, self._judge
                )

    @property
    def to_prepare(self) -> list[PluginRef]:
        """The graders that may be asked, as far as they are known; one of each kind at least."""
        if self._of_prompt is None:
            return [PluginRef(name="regex", options={"pattern": "."})]
        return [ref for refs in self._of_prompt.values() for ref in refs]

    def graders_of(self, place: Place, line: bytes) -> tuple[PluginRef, ...]:
        """Return the graders of one row."""
        if self._of_prompt is not None:
            return self._of_prompt.get(decode_line(_VIEW, place, line).id, ())
        if not _may_name_graders(line):
            return ()
        row = decode_line(_VIEW, place, line)
        key = bytes(row.graders), bytes(row.expect)
        if key not in self._of_row:
            self._of_row[key] = self._read(place, row)
        return self._of_row[key]

    def _read(self, place: Place, row: "_View") -> tuple[PluginRef, ...]:
        fields: dict[str, Any] = {"graders": row.graders or [], "expect": row.expect or None}
        try:
            prompt = msgspec.json.decode(
                msgspec.json.encode({"id": "row", "input": "", **fields}), type=Prompt
            )
        except UNREADABLE as error:
            msg = f"{place}: {explain(error, Prompt)}"
            raise InputError(msg) from error
        kinds = [text.partition(":")[0] for text in prompt.graders]
        named = [f"graders[{n}]" for n, kind in enumerate(kinds) if kind not in PURE]
        if prompt.expect is not None and prompt.expect.command:
            named.append("expect.command")
        if named:
            msg = f'{place}: "{named[0]}" names a program, and that is not started for a row alone'
            raise InputError(msg, hint="name the prompts that these rows were made from: --prompts")
        with _prefixed(place):
            return own_graders(prompt, Path.cwd(), self._timeout_s, judge=self._judge)


class _View(msgspec.Struct, gc=False):
    id: Any = None
    graders: msgspec.Raw = msgspec.Raw()
    expect: msgspec.Raw = msgspec.Raw()


_VIEW = msgspec.json.Decoder(_View)
_LIST = re.compile(rb"\s*:\s*\[")


def _may_name_graders(line: bytes) -> bool:
    """Whether a row may have own graders; most have not, and decoding it twice takes long."""
    if b'"expect"' in line:
        return True
    name = b'"graders"'  # it stands in the identity of a row as well, as an object
    at = line.find(name)
    while at >= 0:
        if _LIST.match(line, at + len(name)):
            return True
        at = line.find(name, at + len(name))
    return False
