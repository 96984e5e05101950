"""Adds to a wheel what is made from the sources: a man page and a bill of materials."""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MadeFiles(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the files before a wheel is built, and removes them afterwards."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder: Path | None = None
        if self.target_name != "wheel" or version == "editable":
            return
        self._folder = folder = Path(tempfile.mkdtemp())
        core = self.metadata.core
        needs = {"": core.dependencies, **core.optional_dependencies}
        page, bill = folder / "assay.1", folder / "assay.cdx.json"
        page.write_text(man_page(Path(self.root), self.metadata.version), encoding="utf-8")
        bill.write_text(bill_of_materials(self.metadata.version, needs), encoding="utf-8")
        build_data["shared_data"][str(page)] = "share/man/man1/assay.1"
        build_data["sbom_files"].append(str(bill))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)


def man_page(root: Path, version: str) -> str:
    """Return assay(1), made of the words of `assay --help`, which need no other package."""
    sys.path.insert(0, str(root / "src"))
    try:
        from assay.cli.help import COMMANDS, HEADINGS, SHIPPED
    finally:
        sys.path.pop(0)
    texts = COMMANDS | {name: text for name, (_, text) in SHIPPED.items()}
    lines = [
        f'.TH ASSAY 1 "" "Assay {version}" "User Commands"',
        ".SH NAME",
        r"assay \- evaluate any command-line agent: capture, grade, repeat, compare",
        ".SH SYNOPSIS",
        r".B assay",
        r".I COMMAND",
        r"[\fIOPTIONS\fR] [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        "Assay runs an agent with and without a change on the same prompts, records everything it",
        "does, grades the results and says with honest statistics whether the change helps.",
        r"\fBassay\fR \fICOMMAND\fR \fB\-\-help\fR describes the options of a command, with "
        "examples.",
        ".SH COMMANDS",
    ]
    for heading, names in HEADINGS.items():
        lines.append(f".SS {heading}")
        for name in names:
            lines += [".TP", rf".B {_escaped(name)}", _escaped(texts[name])]
    lines += [
        ".SH EXIT STATUS",
        *_entries(
            ("0", "Done."),
            ("1", "A problem with input or environment."),
            ("2", "Wrong usage."),
            ("3", "A gate said no."),
            ("4", "A gate could not be judged: not enough data, or an unhealthy measurement."),
            ("130", "Interrupted, with everything saved."),
        ),
        ".SH ENVIRONMENT",
        "The help of each command names the variables that it reads.",
        ".SH EXAMPLES",
        ".TP",
        "Does a skill help?",
        r".B assay ab prompts.jsonl \-s claude \-\-with skill=skills/relnotes \-g contains",
        ".TP",
        "Run every prompt five times:",
        r".B assay trials prompts.jsonl \-s claude \-g contains \-k 5 \-o trials.jsonl",
    ]
    return "\n".join(lines) + "\n"


def _entries(*pairs: tuple[str, str]) -> Iterator[str]:
    for term, text in pairs:
        yield from (".TP", rf".B {term}", _escaped(text))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


def bill_of_materials(version: str, needs: dict[str, list[str]]) -> str:
    """Return the packages that Assay needs, and those of its extras, in CycloneDX 1.6.

    Nothing of others is in the wheel itself; which versions are installed is up to the installer.
    """
    components: dict[str, dict[str, Any]] = {}
    for extra, requirements in needs.items():
        for requirement in requirements:
            found = re.match(r"([A-Za-z0-9._-]+)(\[.*?\])?\s*([^;]*)", requirement)
            assert found is not None
            name = found[1].lower().replace("_", "-")
            if name == "assay":
                continue
            component = components.setdefault(
                name,
                {
                    "type": "library",
                    "bom-ref": f"pkg:pypi/{name}",
                    "name": name,
                    "purl": f"pkg:pypi/{name}",
                    "scope": "optional" if extra else "required",
                    "properties": [{"name": "assay:requires", "value": found[3].strip()}],
                },
            )
            if extra:
                component["properties"].append({"name": "assay:extra", "value": extra})
    main = {
        "type": "application",
        "bom-ref": f"pkg:pypi/assay@{version}",
        "name": "assay",
        "version": version,
        "purl": f"pkg:pypi/assay@{version}",
        "licenses": [{"license": {"id": "MIT"}}],
    }
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": main},
        "components": [components[name] for name in sorted(components)],
        "dependencies": [
            {
                "ref": main["bom-ref"],
                "dependsOn": [components[name]["bom-ref"] for name in sorted(components)],
            }
        ],
    }
    return json.dumps(bill, indent=2) + "\n"
