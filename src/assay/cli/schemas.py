"""assay schemas: JSON Schema for every file format."""

from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.group import examples
from assay.cli.output import refuse_existing, whole_output
from assay.cli.parameters import OutFile, help_option, overwrite_option
from assay.errors import InputError
from assay.records.catalogue import RECORDS, json_schema


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
@overwrite_option
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
    if name is not None and name not in RECORDS:
        msg = f"unknown schema {name!r}"
        raise InputError(msg, hint=f"available: {', '.join(RECORDS)}")
    if split:
        _split(output, [name] if name else list(RECORDS), overwrite=overwrite)
        return
    if name is not None:
        text = _text(json_schema(name))
    elif as_json and not as_list:
        text = _text({each: json_schema(each) for each in RECORDS})
    else:
        width = max(map(len, RECORDS))
        lines = [f"  - {each.ljust(width)} {_first_line(kind)}" for each, kind in RECORDS.items()]
        text = "\n".join(["Available schemas (use --json to export):", *lines, ""])
    with whole_output(output, overwrite=overwrite) as out:
        out.write(text.encode())


def _split(output: Path | None, names: list[str], *, overwrite: bool) -> None:
    if output is None:
        msg = "--split needs -o FOLDER."
        raise click.UsageError(msg)
    files = {name: output / f"{name}.json" for name in names}
    for path in files.values():
        refuse_existing(path, overwrite=overwrite)
    for name, path in files.items():
        with whole_output(path, overwrite=overwrite) as out:
            out.write(_text(json_schema(name)).encode())
    click.echo(f"wrote {len(names)} schema files to {output}", err=True)


def _text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _first_line(kind: Any) -> str:
    kind = kind[0] if isinstance(kind, tuple) else kind
    doc = getattr(kind, "__doc__", None) if isinstance(kind, type) else None
    return doc.splitlines()[0] if doc else "One step of a trajectory."
