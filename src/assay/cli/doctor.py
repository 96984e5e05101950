"""assay doctor: start an agent with a trivial prompt and say exactly what is wrong."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from assay import system
from assay.adapters.vendor import KNOWN, KnownAgent, known_agent
from assay.cli.help import COLOUR, examples, variables
from assay.cli.options import AgentOptions, agent_options, agent_ref, with_options
from assay.cli.output import echo_folded, echo_raw, fitted
from assay.cli.parameters import debug_option, help_option
from assay.errors import AssayError
from assay.pipeline.identity import look_for
from assay.pipeline.prompts import Setting, make_specs
from assay.pipeline.stages import capture_attempt
from assay.records.origin import origin_of
from assay.records.raw_streams import folder_names
from assay.records.spec import Limits, Prompt, Surroundings
from assay.records.text import shown_size, visible
from assay.records.trial import Trial
from assay.run import container, quota, sandbox
from assay.run.cleaning import leftovers

_QUESTION = "Reply with the single word ready."


class _Options(AgentOptions, frozen=True, kw_only=True):
    no_start: bool
    timeout: float
    as_json: bool
    debug: bool


@click.command(
    short_help="Start an agent with a trivial prompt and report what is wrong.",
    epilog=variables(*COLOUR)
    + examples(
        "assay doctor",
        "assay doctor results.jsonl",
        "assay doctor demo --no-start --json",
    ),
)
@click.argument("agents", metavar="[AGENTS|FILES]...", nargs=-1)
@with_options(agent_options[1:])
@click.option(
    "--no-start", is_flag=True, help="Only check that the agent is installed; do not start it."
)
@click.option(
    "-t",
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60_000.0,
    metavar="MS",
    help="Time limit for the answer, in milliseconds. Default: 60000.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@debug_option
@help_option
def command(agents: tuple[str, ...], **given: Any) -> None:
    """Check AGENTS (names or schema files). Without any, check which known agents are installed,
    whether agents can be confined on this machine, and what earlier runs have left on disk.

    Each agent is started and asked one short question, which may cost a little. Of a file or
    folder of results, doctor says what it is and which version of Assay wrote it.
    """
    options = _Options(**given)
    rows = []
    for name in agents or tuple(agent.name for agent in KNOWN):
        start = bool(agents) and not options.no_start
        rows.append(_check(name, options, start=start))
    if not agents:
        rows += _check_machine()
    if options.as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    else:
        for row in rows:
            sign, colour = ("ok", "green") if row["ok"] else ("!!", "red")
            echo_raw(fitted(visible(f"{sign} {row['agent']}: {row['words']}")), fg=colour)
            for advice in row["advice"]:
                echo_folded(f"   {advice}")
    if any(not row["ok"] for row in rows) and agents:
        raise click.exceptions.Exit(1)


def _check(name: str, options: _Options, *, start: bool) -> dict[str, Any]:
    if (path := Path(name)).exists() and path.suffix != ".json":
        return _row(name, ok=True, words=origin_of(path).words, advice=[])
    known = known_agent(name)
    seen = look_for(known) if known else None
    if known and seen and not seen["installed"]:
        return _row(name, ok=False, words="not installed", advice=[known.install])
    version = f"version {seen['version']}" if seen else "declared by a schema"
    notes = list(seen["notes"]) if seen else []
    if not start:
        return _row(name, ok=True, words=f"installed, {version}; not started", advice=notes)
    captured = _ask(name, options)
    return _judge(name, known, captured, version, notes)


def _check_machine() -> list[dict[str, Any]]:
    """Say whether --sandbox, --container, --memory and --cpus work on this machine."""
    limits = Limits(memory_bytes=1 << 30, cpus=1.0)
    here = _row("system", ok=True, words=system.describe(), advice=[])
    checks: dict[str, Callable[[], str]] = {
        "--sandbox": sandbox.describe_sandbox,
        "Landlock": sandbox.describe_landlock,
        "--container": container.describe_engines,
        "--memory and --cpus": partial(quota.describe_quota, limits),
    }
    return [here, *(_checked(name, check) for name, check in checks.items()), _check_disk()]


def _check_disk() -> dict[str, Any]:
    """Say what earlier runs have left on disk."""
    n_found: Counter[str] = Counter()
    n_bytes = 0
    for one in leftovers():
        n_found[one.kind] += 1
        n_bytes += one.n_bytes
    words = ", ".join(f"{kind}: {n}" for kind, n in n_found.items())
    shown = f"{words} ({shown_size(n_bytes)})" if words else "nothing is left of earlier runs"
    return _row("disk", ok=True, words=shown, advice=["assay clean removes them"] if words else [])


def _checked(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return _row(name, ok=True, words=check(), advice=[])
    except AssayError as error:
        return _row(name, ok=False, words=error.message, advice=[error.hint] if error.hint else [])


def _ask(name: str, options: _Options) -> Trial:
    agent = agent_ref(msgspec.structs.replace(options, schema=name))
    prompt = Prompt(id="doctor", input=_QUESTION)
    with tempfile.TemporaryDirectory(prefix="assay-doctor-") as folder:
        setting = Setting(
            agent=agent,
            limits=Limits(turn_s=options.timeout / 1000),
            surroundings=Surroundings(cwd=str(Path(folder).resolve())),
            run_token=f"doctor-{os.getpid()}",
        )
        [spec] = make_specs([(prompt, {})], folder_names(["doctor"]), setting)
        return capture_attempt(spec)


def _judge(
    name: str, known: KnownAgent | None, captured: Trial, version: str, notes: list[str]
) -> dict[str, Any]:
    row = partial(_row, name)
    failure = captured.failure or None
    if failure is None:
        answer = captured.output.strip().splitlines()[:1] or ["nothing"]
        return row(ok=True, words=f"{version}, answered {answer[0][:60]!r}", advice=notes)
    advice = {
        "auth": known.login if known else "check its API key",
        "spawn": known.install if known else "check the command in its schema",
        "provider": "its model provider does not answer; try again, or check the network",
        "agent_timeout": "it did not answer in time; try a higher -t",
    }.get(failure.cause, "see its stderr below")
    lines = [advice, *notes]
    # Claude Code does not run unattended as root.
    if "root" in (captured.stderr or "") and "privileges" in (captured.stderr or ""):
        lines.insert(0, "it refuses to run as root: use another user, or set IS_SANDBOX=1")
    if captured.stderr:
        lines.append(f"stderr: {captured.stderr.splitlines()[-1][:300]}")
    return row(ok=False, words=f"{failure.cause.words}: {failure.message}", advice=lines)


def _row(name: str, *, ok: bool, words: str, advice: list[str]) -> dict[str, Any]:
    return {"agent": name, "ok": ok, "words": words, "advice": advice}
