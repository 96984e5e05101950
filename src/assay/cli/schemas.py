"""assay schemas: JSON Schema for every file format."""

from pathlib import Path
from typing import Any, get_args, get_origin

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import derived_output, fitted, refuse_measured
from assay.cli.parameters import OutFile, help_option, replace_option
from assay.errors import InputError
from assay.records.catalogue import RECORDS, json_schema
from assay.records.experiment import Experiment
from assay.testing.model.script import Script

# Here, because they belong to rooms above the records.
RECORDS["ModelScript"] = Script
RECORDS["Experiment"] = Experiment


@click.command(
    short_help="List or export the JSON Schema of every file format.",
    epilog=examples(
        "assay schemas",
        "assay schemas --json -o schemas.json",
        "assay schemas --split -o schemas",
    ),
)
@click.argument("name", required=False)
@click.option(
    "-o",
    "--output",
    type=OutFile(),
    metavar="FILE",
    help="Write to this file, or folder with --split. Default: stdout, which is also -.",
)
@replace_option
@click.option(
    "-j", "--json", "as_json", is_flag=True, help="Export all schemas as one JSON object."
)
@click.option(
    "-s", "--split", is_flag=True, help="Export each schema to a file of its own in the folder -o."
)
@click.option(
    "-l", "--list", "as_list", is_flag=True, help="Only list the schemas, even with --json."
)
@help_option
def command(
    name: str | None,
    output: Path | None,
    *,
    overwrite: bool,
    as_json: bool,
    split: bool,
    as_list: bool,
) -> None:
    """List the records that Assay reads and writes, or export their JSON Schema (2020-12).

    With NAME, only that schema is exported.
    """
    kinds = all_kinds()
    if name is not None and name not in kinds:
        msg = f"unknown schema {name!r}"
        raise InputError(msg, hint=f"available: {', '.join(kinds)}")
    if split:
        chosen = {name: kinds[name]} if name else kinds
        _split(output, chosen, overwrite=overwrite)
        return
    if name is not None:
        text = _text(json_schema(name, kinds[name]))
    elif as_json and not as_list:
        text = _text({each: json_schema(each, kind) for each, kind in kinds.items()})
    else:
        width = max(map(len, kinds))
        lines = [f"  - {each.ljust(width)} {_first_line(kind)}" for each, kind in kinds.items()]
        text = "\n".join(["Available schemas (use --json to export):", *lines, ""])
        text = text if output else fitted(text)
    with derived_output(output, overwrite=overwrite) as out:
        out.write(text.encode())


def all_kinds() -> dict[str, Any]:
    from assay.compare.shapes import REPORTS  # late: it imports numpy

    return {**RECORDS, **REPORTS}


def _split(output: Path | None, kinds: dict[str, Any], *, overwrite: bool) -> None:
    if output is None:
        msg = "--split needs -o FOLDER."
        raise click.UsageError(msg)
    files = {name: output / f"{name}.json" for name in kinds}
    for path in files.values():
        refuse_measured(path, overwrite=overwrite)
    for name, path in files.items():
        with derived_output(path, overwrite=overwrite) as out:
            out.write(_text(json_schema(name, kinds[name])).encode())
    click.echo(f"wrote {len(kinds)} schema files to {output}", err=True)


def _text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _first_line(kind: Any) -> str:
    kind = kind[0] if isinstance(kind, tuple) else kind
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    doc = getattr(kind, "__doc__", None) if isinstance(kind, type) else None
    return doc.splitlines()[0] if doc else "One step of a trajectory."
