"""What `assay init` writes for editors: schemas that check its files, and tasks of VS Code."""

import json
from pathlib import Path
from typing import Any

import msgspec

from assay.cli.output import echo_folded
from assay.records.adapter_schema import AdapterSchema
from assay.records.catalogue import RECORDS, json_schema
from assay.records.experiment import Experiment

SCHEMAS = {
    "experiment": ("Experiment", Experiment),
    "prompt": ("PromptCase", RECORDS["PromptCase"]),
    "agent": ("AdapterSchema", AdapterSchema),
}
"""By the name of the file; `schemas/` of the repository has the same."""
FIRST_LINE = "#:schema ./schemas/experiment.json"
"""Of experiment.toml: editors with a TOML language server complete and check it by this."""


def write_schemas(folder: Path) -> None:
    """Write the schemas that files of this folder name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SCHEMAS:
        (folder / f"{name}.json").write_text(schema_text(name), encoding="utf-8")


def schema_text(name: str) -> str:
    title, kind = SCHEMAS[name]
    text = msgspec.json.encode(json_schema(title, kind))
    return msgspec.json.format(text, indent=2).decode() + "\n"


def write_vscode(folder: Path, experiment: Path, *, force: bool) -> None:
    """Write tasks that run an experiment, and the settings by which its files are checked."""
    place = Path(".vscode")
    place.mkdir(exist_ok=True)
    made = {"tasks.json": _tasks(experiment), "settings.json": _settings(folder)}
    for name, content in made.items():
        path = place / name
        if path.exists() and not force:
            text = f"{path} exists and was left as it is; assay init --force --vscode replaces it"
            echo_folded(text, err=True)
            continue
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        echo_folded(f"Wrote {path}.")


def _tasks(experiment: Path) -> dict[str, Any]:
    commands = {
        "Assay: does the change help?": ["ab", str(experiment)],
        "Assay: is the verdict still about these files?": ["ab", "status", "--check"],
        "Assay: show the results": ["view", "experiments"],
    }
    tasks = [
        {"label": label, "type": "process", "command": "assay", "args": words, "problemMatcher": []}
        for label, words in commands.items()
    ]
    return {"version": "2.0.0", "tasks": tasks}


def _settings(folder: Path) -> dict[str, Any]:
    at = folder.as_posix()
    return {
        "files.associations": {f"{at}/*.jsonl": "jsonl"},
        "json.schemas": [
            {"fileMatch": [f"{at}/prompts.jsonl"], "url": f"./{at}/schemas/prompt.json"},
            {"fileMatch": [f"{at}/*.agent.json"], "url": f"./{at}/schemas/agent.json"},
        ],
    }
