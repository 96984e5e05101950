"""assay schemas: JSON Schema for every file format."""

from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.group import examples
from assay.cli.output import Sink
from assay.cli.parameters import help_option
from assay.errors import InputError, OutputError
from assay.records.catalogue import RECORDS, json_schema
from assay.testing.model.script import Script

RECORDS["ModelScript"] = Script  # here, because it belongs to a room above the records


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
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file, or folder with --split. Default: stdout.",
)
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
    name: str | None, output: Path | None, *, as_json: bool, split: bool, as_list: bool
) -> None:
    """List the records that Assay reads and writes, or export their JSON Schema (2020-12).

    With NAME, only that schema is exported.
    """
    if name is not None and name not in RECORDS:
        msg = f"unknown schema {name!r}"
        raise InputError(msg, hint=f"available: {', '.join(RECORDS)}")
    if split:
        _split(output, [name] if name else list(RECORDS))
    elif name is not None:
        _write(output, json_schema(name))
    elif as_json and not as_list:
        _write(output, {each: json_schema(each) for each in RECORDS})
    else:
        click.echo("Available schemas (use --json to export):")
        for each, kind in RECORDS.items():
            click.echo(f"  - {each.ljust(16)} {_first_line(kind)}")


def _split(output: Path | None, names: list[str]) -> None:
    if output is None:
        msg = "--split needs -o FOLDER."
        raise click.UsageError(msg)
    for name in names:
        _write(output / f"{name}.json", json_schema(name))
    click.echo(f"wrote {len(names)} schema files to {output}", err=True)


def _write(output: Path | None, value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if output is None:
        Sink(None).append(text.encode())
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        msg = f"cannot write {output}: {error.strerror}"
        raise OutputError(msg) from error


def _first_line(kind: Any) -> str:
    kind = kind[0] if isinstance(kind, tuple) else kind
    doc = getattr(kind, "__doc__", None) if isinstance(kind, type) else None
    return doc.splitlines()[0] if doc else "One step of a trajectory."
