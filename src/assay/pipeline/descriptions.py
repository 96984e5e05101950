"""What an agent is asked to write about a skill: cases to begin with, and better descriptions."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from assay.errors import InputError, PluginError
from assay.pipeline.material import SKILL_FILE, Skill
from assay.pipeline.stages import AskingHost
from assay.pipeline.steps import Budget
from assay.pipeline.trigger import checked_description
from assay.plugin import Host
from assay.records.reports import TriggerRun
from assay.records.skills import SHOULD_TRIGGER
from assay.records.spec import PluginRef, TrialSpec
from assay.records.text import counted_noun
from assay.records.trial import Trial
from assay.report.experiment import money

_MOST_CHARS = 20_000
"""Of a SKILL.md; its beginning says what it is for."""
_FEWEST = 2
_OBJECT = re.compile(r"\{[^{}]*\}")
_DESCRIPTION = re.compile(r"<description>(.*?)</description>", re.DOTALL)

_CASES = """\
A skill is a folder with instructions that a coding agent loads when its description fits the task.
Write test cases for whether an agent loads this skill when it should, and only then.

<skill>
{text}
</skill>

Write {n} requests that should make the agent load the skill, and {n} that should not. Write them
as real users would: concrete, with file names, half sentences, different lengths, seldom naming
the skill. Those that should not must be near misses: the same words or files, but another task.
Answer with one JSON object per line and nothing else:
{{"input": "...", "shouldTrigger": true}}
"""
_BETTER = """\
A skill is a folder with instructions that a coding agent loads when its description fits the task.
The agent sees only the name and the description of each skill when it decides. Improve the
description of this one.

<skill>
{text}
</skill>

It was tested with requests. Tried so far, best first:
{tried}

What went wrong with the best one:
{wrong}

Say what the skill does and when to use it, in the words of users; where it was loaded wrongly, say
when not to use it. Do not copy the requests: it will be tested with others. At most 1024
characters, no line breaks. Answer with
<description>the new description</description>
"""


class PaidHost(AskingHost):
    """Asks agents from a budget: nothing that the rest of it may not suffice for."""

    hides_env = False  # no hostile text: the user's own agent reads the user's own skill

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget
        self.known: list[float] = []
        """What questions cost."""
        self.unknown: list[float] = []
        """What was counted for questions whose cost is not known."""

    def put(self, spec: TrialSpec) -> Trial:
        """Put a question, if there is money for it."""
        bound, left = max(self.known, default=self._budget.bound(spec)), self._budget.left
        if left <= 0 or bound > left:
            msg = f"{money(left)} is left of --max-cost"
            msg += f", and asking the agent may cost {money(bound)}" if left else ""
            raise InputError(msg, hint="nothing was asked; use a higher --max-cost")
        cost: float | None = None
        try:
            captured = super().put(spec)
            cost = captured.cost_usd
        finally:
            counted = bound if cost is None else cost
            self._budget.spend(counted)
            (self.unknown if cost is None else self.known).append(counted)
        return captured

    @property
    def cost_words(self) -> str:
        """As in: $0.0120, and 1 answer of unknown cost, for which --max-cost counts $0.0100."""
        parts = [money(sum(self.known))] if self.known else []
        if n := len(self.unknown):
            counts = f", for which --max-cost counts {money(sum(self.unknown))}"
            counts = counts if self._budget.is_limited else ""
            parts.append(f"{counted_noun(n, 'answer')} of unknown cost{counts}")
        return ", and ".join(parts)


def suggest_cases(skill: Skill, agent: PluginRef, host: Host, n: int, timeout_s: float) -> str:
    """Have an agent write cases; return them as JSON lines."""
    answer = host.ask(agent, _CASES.format(text=_text(skill), n=n), timeout_s=timeout_s)
    cases = list(_cases_in(answer))
    for should in (True, False):
        if sum(case[SHOULD_TRIGGER] is should for case in cases) < _FEWEST:
            msg = f"the agent wrote no usable set of cases: {answer.strip()[:200]!r}"
            raise PluginError(msg, hint="run the command again, or write the cases yourself")
    lines = (
        msgspec.json.encode({"id": f"case-{number}", **case})
        for number, case in enumerate(cases, 1)
    )
    return "".join(f"{line.decode()}\n" for line in lines)


def _cases_in(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the cases of an answer, which may stand in an array, a block of code or other text."""
    for found in _OBJECT.finditer(answer):
        try:
            case = msgspec.json.decode(found[0])
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        text = case.get("input", case.get("query"))
        should = case.get(SHOULD_TRIGGER, case.get("should_trigger"))
        if isinstance(text, str) and text.strip() and isinstance(should, bool):
            yield {"input": text, SHOULD_TRIGGER: should}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A description and how it did on the half of the cases that it was made from."""

    description: str
    run: TriggerRun
    inputs: dict[str, str]
    """What each case asks for."""

    @property
    def score(self) -> float:
        """The mean over the cases of how often the skill did what it should."""
        rates = [
            case.n_fired / case.n_measured
            if case.should_trigger
            else 1 - case.n_fired / case.n_measured
            for case in self.run.cases
            if case.n_measured
        ]
        return sum(rates) / len(rates) if rates else 0.0


def best_of(attempts: Sequence[Attempt]) -> Attempt:
    """Return the attempt with the best score; of equal ones the first, which changes least."""
    return max(attempts, key=lambda attempt: attempt.score)


def propose_description(
    skill: Skill, attempts: Sequence[Attempt], agent: PluginRef, host: Host, timeout_s: float
) -> str:
    """Have an agent write another description, from what was tried."""
    ranked = sorted(attempts, key=lambda attempt: -attempt.score)
    tried = "\n".join(f"- {a.score:.0%} right: {a.description}" for a in ranked)
    wrong = "\n".join(_wrong_cases(ranked[0])) or "- nothing"
    asked = _BETTER.format(text=_text(skill), tried=tried, wrong=wrong)
    answer = host.ask(agent, asked, timeout_s=timeout_s)
    found = _DESCRIPTION.findall(answer)
    if not found:
        msg = f"the agent proposed no description: {answer.strip()[:200]!r}"
        raise PluginError(msg)
    try:
        return checked_description(found[-1], "the agent's proposal")
    except InputError as error:
        raise PluginError(error.message) from error


def _wrong_cases(attempt: Attempt) -> Iterator[str]:
    for case in attempt.run.cases:
        n_wrong = case.n_measured - case.n_fired if case.should_trigger else case.n_fired
        if not n_wrong:
            continue
        what = "was not loaded" if case.should_trigger else "was loaded and should not have been"
        used = f" (loaded instead: {', '.join(case.instead)})" if case.instead else ""
        asked = attempt.inputs.get(case.id, case.id)
        yield f"- {what} in {n_wrong} of {case.n_measured} trials{used}: {asked}"


def _text(skill: Skill) -> str:
    return (skill.folder / SKILL_FILE).read_text(encoding="utf-8")[:_MOST_CHARS]


_PROMPTS = """\
A skill is a folder with instructions that a coding agent loads when its description fits the task.
Write test prompts that show whether an agent with this skill does better work than one without.

<skill>
{text}
</skill>

Write {n} requests as real users would, concrete and different from each other, seldom naming the
skill. For each, name a short text that the answer has if, and only if, the skill was followed.
Answer with one JSON object per line and nothing else:
{{"input": "...", "hint": "..."}}
"""


def suggest_prompts(
    skill: Skill, agent: PluginRef, host: Host, n: int, timeout_s: float
) -> list[dict[str, Any]]:
    """Have an agent write prompts about a skill, each with what a good answer has."""
    answer = host.ask(agent, _PROMPTS.format(text=_text(skill), n=n), timeout_s=timeout_s)
    found: list[dict[str, Any]] = []
    for text in _OBJECT.findall(answer):
        try:
            one = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        asked, hint = one.get("input"), one.get("hint")
        if isinstance(asked, str) and isinstance(hint, str) and asked.strip() and hint.strip():
            found.append({"id": f"{skill.name}-{len(found) + 1}", "input": asked, "hint": hint})
    if len(found) < _FEWEST:
        msg = f"the agent wrote no usable prompts: {answer.strip()[:200]!r}"
        raise PluginError(msg, hint="run the command again, or write the prompts yourself")
    return found


_WHEN = re.compile(
    r"\b(?:use (?:this |it )?(?:skill )?)?when(?:ever)? (?:the )?(?:users? )?"
    r"(?:(?:is |are )?(?:ask(?:s|ed|ing)?|wants?|wanting|needs?|needing|says?)\b)?"
    r"(?: you)?(?: for)?(?P<to> to\b)?\s*(?P<what>.+?)(?:[.;]|$)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“]([^\"”\n]{12,200})[\"”]")
_TERMS = (
    *(r"`([^`\n]{3,40})`", r"\*\*([^*\n]{3,40})\*\*"),
    *(r"\b([A-Z][a-z]{3,20})\b", r"\b(\w{6,20})\b"),
)
"""What is taken for a term of a skill's own: code, bold words, words in capitals, long words."""


def written_prompts(skill: Skill) -> list[dict[str, Any]]:
    """Write three prompts from what a skill says: a form to put real ones into.

    One asks for what the description promises, one for an example or a case of it, and one for
    something else, which the skill must not harm. The hint is a word of the skill's own.
    """
    text = _text(skill)
    body = text.split("---", 2)[-1]
    first = re.split(r"(?<=[.!?])\s|\buse (?:this|it|when)\b", skill.description, flags=re.I)[0]
    example = next(iter(_QUOTED.findall(text)), "")
    if not example and (when := _WHEN.search(skill.description)):
        # What follows "to" is what to do; anything else is a case, such as "a release is cut".
        example = f"Please {when['what']}." if when["to"] else f"I need help: {when['what']}."
    asked = [first.strip() or skill.description, example or f"{skill.description} Do it for me."]
    rows = [
        {"id": f"{skill.name}-{number}", "input": text, "hint": _term(body, text) or skill.name}
        for number, text in enumerate(asked, 1)
    ]
    other = {"id": "unrelated", "input": "What is 17 + 25?", "hint": "42"}
    return [*rows, other]


def _term(body: str, asked: str) -> str:
    """Return a term of a skill that a request does not have."""
    for pattern in _TERMS:
        for term in re.findall(pattern, body):
            if term.lower() not in asked.lower():
                return str(term)
    return ""
