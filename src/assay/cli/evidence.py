"""assay evidence: one file with a result that a stranger can verify."""

import os
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from assay import plugins
from assay.cli.help import examples, variables
from assay.cli.options import grader_options, with_options
from assay.cli.output import echo_folded, refuse_measured, refuse_same_file
from assay.cli.parameters import (
    debug_option,
    help_option,
    margin_option,
    quiet_option,
    seed_option,
)
from assay.evidence.board import check_board, write_board
from assay.evidence.check import verify_bundle
from assay.evidence.pack import PackRequest, pack
from assay.evidence.unpack import reveal
from assay.evidence.verify import Report
from assay.export.optional import signing
from assay.records.spec import PluginRef
from assay.records.text import counted_noun, visible_line

_FILE = click.Path(path_type=Path)
_PASSWORD = ("ASSAY_KEY_PASSWORD", "The password of a private key. Default: the key has none.")
_STATES = {"holds": "holds", "differs": "DIFFERS", "unchecked": "not checked", "none": "-"}
_COLOURS = {"holds": "green", "differs": "red", "unchecked": "yellow", "none": None}


@click.group(
    short_help="Bundle a result with its proof, and verify such bundles.",
    epilog=examples(
        "assay evidence pack before.jsonl after.jsonl -o evidence.zip",
        "assay evidence verify evidence.zip",
    ),
)
@help_option
def command() -> None:
    """Put a result with everything that it rests on into one file, which anybody can verify
    offline: see docs/evidence.md.
    """


@command.command(
    "pack",
    short_help="Write a bundle of an experiment or of result files.",
    epilog=variables(*_PASSWORD)
    + examples(
        "assay evidence pack before.jsonl after.jsonl -o evidence.zip",
        "assay evidence pack results.jsonl -g grader.py --redact paths -o evidence.zip",
    ),
)
@click.argument("given", nargs=-1, required=True, metavar="EXPERIMENT|FILE...")
@click.option(
    "-o",
    "--output",
    type=_FILE,
    default="evidence.zip",
    metavar="FILE",
    help="Write the bundle to this file. Default: evidence.zip.",
)
@with_options(grader_options)
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The prompts that the rows were made from, where these bring graders of their own. "
    "Default: an experiment knows its prompts.",
)
@click.option(
    "-s",
    "--schema",
    "agent",
    metavar="AGENT",
    help="The agent of the files, as it was given to the run. Default: the one that rows name.",
)
@click.option(
    "--include",
    multiple=True,
    type=click.Choice(["templates"]),
    help="Put the content of templates, skills and instructions in, too. Default: their hashes.",
)
@click.option(
    "--redact",
    multiple=True,
    metavar="KIND,...",
    help="Withhold outputs, inputs, raw (streams), paths or single fields of the rows, such as "
    "metadata.customer; each text is replaced by a salted digest. May be repeated.",
)
@click.option(
    "--sign",
    "key",
    type=_FILE,
    metavar="KEY.pem",
    help="Sign with this private key (see assay evidence new-key). Default: not signed.",
)
@click.option(
    "--keyless",
    is_flag=True,
    help="Sign by the identity of this CI job or person, through sigstore; needs the network.",
)
@click.option(
    "--reproduces",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="BUNDLE",
    help="Say that this is the same measurement again as the one in an earlier bundle.",
)
@margin_option
@seed_option
@quiet_option
@debug_option
@help_option
def pack_command(**given: Any) -> None:
    """Bundle an EXPERIMENT (its folder or that of one run) or FILEs of results.

    The same input gives the same bytes. If a secret is found in what would be written, nothing is
    written.
    """
    output, timeout_s = given["output"], given["grader_timeout"]
    refuse_measured(output, overwrite=False)
    for name in given["given"]:
        if Path(name).is_file():
            refuse_same_file(Path(name), output)
    prompts = given["prompts"]
    packed = pack(
        PackRequest(
            given=given["given"],
            output=output,
            graders=[plugins.grader_ref(text, timeout_s) for text in given["graders"]],
            prompts=PluginRef(name="prompts", options={"path": str(prompts)}) if prompts else None,
            agent=given["agent"],
            margin=given["margin"],
            seed=given["seed"],
            include=given["include"],
            redact=[kind for text in given["redact"] for kind in text.split(",") if kind],
            key=given["key"],
            keyless=given["keyless"],
            reproduces=given["reproduces"],
        )
    )
    if given["quiet"]:
        return
    trials, size = counted_noun(packed.n_trials, "trial"), packed.path.stat().st_size / 1e6
    echo_folded(f"{packed.path}: {trials}, {packed.n_parts} parts, {size:.2f} MB", err=True)
    echo_folded(f"manifest sha256:{packed.digest}", err=True)
    echo_folded(f"Merkle root {packed.root}", err=True)
    for note in packed.notes:
        echo_folded(f"note: {visible_line(note)}", err=True)
    if packed.private is not None:
        words = "has what is withheld, with its salts; keep it private"
        echo_folded(f"{packed.private} {words}. `assay evidence reveal` needs it.", err=True)


@command.command(
    "verify",
    short_help="Say level by level what of a bundle holds.",
    epilog=examples(
        "assay evidence verify evidence.zip",
        "assay evidence verify evidence.zip --json",
    ),
)
@click.argument("bundle", type=_FILE)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=_FILE,
    metavar="PUB",
    help="Demand a signature by this public key. May be repeated, for one of several keys. "
    "Default: a signature is checked with the key in the bundle, which proves nobody's name.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing if all holds that can hold.")
@debug_option
@help_option
def verify(bundle: Path, keys: tuple[Path, ...], *, as_json: bool, quiet: bool, **_: Any) -> None:
    """Verify a BUNDLE offline, in a process of its own without network, and trust nothing in it.

    The exit code is 0 if all holds that can hold, 3 if something differs, and 4 if something could
    not be checked.
    """
    report = verify_bundle(bundle, keys)
    if as_json:
        found = {"exitCode": report.code, **msgspec.to_builtins(report)}
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    elif report.code or not quiet:
        _print(report)
    if report.code:
        raise click.exceptions.Exit(report.code)


def _print(report: Report) -> None:
    for level in report.levels:
        name, state = f"{level.name:14}", f"{_STATES[level.state]:11}"
        shown = click.style(state, fg=_COLOURS[level.state]) if _colours() else state
        click.echo(f"{name} {shown} {visible_line(level.words)}")
        for line in level.differences:
            echo_folded(visible_line(f"  differs: {line}"))
        for line in level.unchecked:
            echo_folded(visible_line(f"  not checked: {line}"))
    if report.withheld:
        echo_folded(visible_line(report.withheld))
    if report.digest:
        echo_folded(f"manifest sha256:{report.digest}")
    if report.open_to:
        what = " and ".join(report.open_to)
        echo_folded(f"note: this machine has no sandbox that could shut out {what}", err=True)


def _colours() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ


@command.command(
    "reveal",
    short_help="Show trials of a bundle that withholds them.",
    epilog=examples(
        "assay evidence reveal evidence.zip --trial sum-1",
        "assay evidence reveal evidence.zip --trial sum-1 -o revealed.zip",
    ),
)
@click.argument("bundle", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--trial",
    "trials",
    multiple=True,
    required=True,
    metavar="ID",
    help="Show the trials of this prompt, ID#NUMBER one of them, RUN:ID those of one run; * stands "
    "for anything. May be repeated.",
)
@click.option(
    "--from",
    "private",
    type=_FILE,
    metavar="FILE",
    help="What the bundle withholds. Default: BUNDLE.private, beside it.",
)
@click.option(
    "-o",
    "--output",
    type=_FILE,
    metavar="FILE",
    help="Write the bundle to this file. Default: in its place.",
)
@quiet_option
@debug_option
@help_option
def reveal_command(bundle: Path, **given: Any) -> None:
    """Put withheld texts and raw streams of single trials back into a BUNDLE. They follow from the
    digests that were signed, so that the signature stays valid.
    """
    shown = reveal(bundle, given["trials"], given["output"] or bundle, given["private"])
    if not given["quiet"]:
        listed = ", ".join(shown[:10]) + (" …" if len(shown) > 10 else "")
        echo_folded(visible_line(f"{counted_noun(len(shown), 'trial')} shown: {listed}"), err=True)


@command.command(
    "board",
    short_help="Write a leaderboard of a folder of bundles.",
    epilog=examples("assay evidence board . -o board.html", "assay evidence board . --check"),
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=_FILE,
    metavar="FILE",
    help="Write the page to this file. Default: board.html.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; exit with code 3 if a bundle differs, and 4 if one could not be checked.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=_FILE,
    metavar="PUB",
    help="Demand that each bundle is signed by one of these keys. Default: no key is demanded.",
)
@quiet_option
@debug_option
@help_option
def board(folder: Path, *, check: bool, keys: tuple[Path, ...], quiet: bool, **given: Any) -> None:
    """Verify each bundle in FOLDER and put the results on one static page. Results on different
    prompts or graders are in different tables; bundles that do not hold are in none.
    """
    found = check_board(folder, keys)
    for one in found if not quiet else ():
        echo_folded(visible_line(f"{one.path}: {one.words}"), err=True)
    if check:
        if code := max((one.rank for one in found), default=0):
            raise click.exceptions.Exit((0, 4, 3)[code])
        return
    output = given["output"] or Path("board.html")
    refuse_measured(output, overwrite=False)
    write_board(found, output)
    if not quiet:
        echo_folded(f"{output}", err=True)


@command.command(
    "new-key",
    short_help="Make a key to sign bundles with.",
    epilog=variables(*_PASSWORD)
    + examples(
        "assay evidence new-key key.pem",
        "assay evidence new-key key.pem --password",
    ),
)
@click.argument("path", type=_FILE, default="evidence-key.pem", metavar="[KEY.pem]")
@click.option(
    "--password",
    is_flag=True,
    help="Ask for a password, which is then in ASSAY_KEY_PASSWORD whenever the key is used. "
    "Default: that variable, or none.",
)
@debug_option
@help_option
def new_key(path: Path, *, password: bool, **_: Any) -> None:
    """Make an ed25519 key: KEY.pem, which is private, and beside it KEY.pub, for everybody."""
    module = signing()
    given = module.given_password()
    if password:
        given = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    public, print_ = module.new_key(path, given)
    echo_folded(f"{path} (private) and {public} (for everybody), fingerprint {print_}", err=True)
