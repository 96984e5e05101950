"""197 cases in the shapes that skills and evaluations are published in, written for these tests.

The shapes are those of the Agent Skills guide, of skill-creator, of promptfoo's documentation and
of what authors make of them: assertions as texts and as objects, files, trigger queries, tables.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

THEMES = (
    *(("invoice", "invoice.pdf", "total"), ("changelog", "CHANGELOG.md", "Unreleased")),
    *(("survey", "survey.csv", "median"), ("slides", "deck.pptx", "agenda")),
    *(("schema", "schema.sql", "primary key"), ("calendar", "week.ics", "conflict")),
)


def skill_evals(theme: tuple[str, str, str], number: int) -> dict[str, Any]:
    """One case as the guide has it; every sixth has no assertions yet."""
    name, file, word = theme
    assertions: list[Any] = [
        f"The {name} names its {word}",
        f"A file named {file} is created",
        f"The response mentions '{word}'",
        f"`python3 check_{name}.py` exits with code 0",
        f"The {name} keeps the order of the source",
    ]
    case = {
        "id": number,
        "prompt": f"Here is the {name} number {number}. Please work on {file}.",
        "expected_output": f"A tidy {name} with its {word}.",
        "files": [f"evals/files/{name}.txt"],
    }
    return case if number % 6 == 0 else {**case, "assertions": assertions[: 1 + number % 5]}


def creator_evals(theme: tuple[str, str, str], number: int) -> dict[str, Any]:
    """One case of skill-creator: expectations in place of assertions, and a name."""
    name, file, word = theme
    return {
        "id": number,
        "name": f"{name}-{number}",
        "prompt": f"Make the {name} that we talked about, variant {number}",
        "expected_output": f"A {name}",
        "expectations": [f"The output includes the {word}", f'{file} contains "{word}"'],
        "files": [],
    }


def typed_evals(theme: tuple[str, str, str], number: int) -> dict[str, Any]:
    """One case whose assertions are objects."""
    name, file, word = theme
    return {
        "id": f"{name}-{number}",
        "prompt": f"Check {name} {number}",
        "assertions": [
            {"id": "a", "text": f"Says what the {word} is", "type": "semantic"},
            {"type": "contains", "value": word},
            {"type": "file_exists", "path": file},
            {"check": "The checker agrees", "cmd": ["python3", "check.py", name]},
        ][: 1 + number % 4],
    }


def trigger_queries(theme: tuple[str, str, str], number: int) -> dict[str, Any]:
    name, _, word = theme
    return {
        "query": f"What about the {word} of {name} {number}?",
        "should_trigger": number % 2 == 0,
    }


PROMPTFOO_ASSERTS: tuple[dict[str, Any], ...] = (
    {"type": "equals", "value": "{{word}}"},
    {"type": "contains", "value": "{{word}}"},
    {"type": "icontains", "value": "{{name}}"},
    {"type": "not-contains", "value": "as an AI"},
    {"type": "contains-all", "value": ["{{name}}", "{{word}}"]},
    {"type": "contains-any", "value": ["{{name}}", "{{word}}"]},
    {"type": "icontains-any", "value": "yes, no"},
    {"type": "regex", "value": "\\d{2,4}"},
    {"type": "not-regex", "value": "^Error"},
    {"type": "starts-with", "value": "The"},
    {"type": "is-json"},
    {"type": "contains-json", "value": {"type": "object", "required": ["total"]}},
    {"type": "cost", "threshold": 0.01},
    {"type": "latency", "threshold": 5000},
    {"type": "word-count", "value": {"min": 1, "max": 50}},
    {"type": "llm-rubric", "value": "Is about the {{name}}"},
    {"type": "model-graded-closedqa", "value": "States the {{word}}"},
    {"type": "factuality", "value": "The {{word}} is 12."},
    {"type": "g-eval", "value": ["Is coherent", "Is short"]},
    {"type": "answer-relevance", "threshold": 0.8},
    {"type": "skill-used", "value": "{{name}}"},
    {"type": "trajectory:tool-used", "value": ["Read", "Write"]},
    {"type": "assert-set", "assert": [{"type": "contains", "value": "a"}, {"type": "is-json"}]},
    {"type": "not-equals", "value": "42"},
    # What has no equivalent: a model of embeddings, code in the configuration.
    {"type": "similar", "value": "The {{word}}", "threshold": 0.8},
    {"type": "javascript", "value": "output.length < 100"},
)


def promptfoo(n: int) -> dict[str, Any]:
    tests = []
    for number in range(n):
        name, _, word = THEMES[number % len(THEMES)]
        one = PROMPTFOO_ASSERTS[number % len(PROMPTFOO_ASSERTS)]
        given = {"name": name, "word": word}
        tests.append({"description": f"{name} {number}", "vars": given, "assert": [one]})
    return {"prompts": ["What is the {{word}} of the {{name}}?"], "providers": [], "tests": tests}


EXPECTED = (
    "contains: {}",
    "{}",
    "llm-rubric: Names the {}",
    "icontains:{}",
    "regex: .*",
    "is-json",
)


def write(folder: Path) -> Iterator[Path]:
    """Write all 197 cases into files below a folder; yield the files."""
    for place, make, n, key in (
        ("guide", skill_evals, 48, "evals"),
        ("creator", creator_evals, 36, "evals"),
        ("typed", typed_evals, 24, "evals"),
    ):
        path = folder / place / "evals" / "evals.json"
        (path.parent / "files").mkdir(parents=True)
        for name, *_ in THEMES:
            (path.parent / "files" / f"{name}.txt").write_text(name)
        cases = [make(THEMES[number % len(THEMES)], number) for number in range(1, n + 1)]
        path.write_text(json.dumps({"skill_name": place, key: cases}, indent=1))
        yield path
    queries = [trigger_queries(THEMES[number % len(THEMES)], number) for number in range(20)]
    (folder / "queries.json").write_text(json.dumps(queries))
    yield folder / "queries.json"
    (folder / "promptfooconfig.json").write_text(json.dumps(promptfoo(52)))
    yield folder / "promptfooconfig.json"
    lines = ["question,__expected,__metadata:topic"]
    for number in range(17):
        name, _, word = THEMES[number % len(THEMES)]
        cell = EXPECTED[number % len(EXPECTED)].format(word)
        lines.append(f'"What is the {word}, please, of {name} {number}?","{cell}",{name}')
    (folder / "cases.csv").write_text("\n".join(lines) + "\n")
    yield folder / "cases.csv"
