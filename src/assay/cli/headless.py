"""assay headless: any agent, served over the Agent Client Protocol on stdio."""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from assay import __version__, plugins
from assay.adapters.acp.server import AcpServer, ServerContext
from assay.adapters.acp.wire import Outbox
from assay.cli.debug import DebugTrace
from assay.cli.help import examples
from assay.cli.options import (
    DEBUG_HELP,
    DEFAULT_TIMEOUT_MS,
    AgentOptions,
    agent_options,
    agent_ref,
    text_agent_options,
    with_options,
)
from assay.cli.parameters import help_option
from assay.cli.stdio import ignore_signals, read_lines, stop_at_signals, write_stdout
from assay.pipeline.extract import extract
from assay.plugin import Adapter
from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec
from assay.run.conversation import Conversation, Places
from assay.run.family import Mark
from assay.run.raw import RawStreams
from assay.run.turn import OnStep


class HeadlessOptions(AgentOptions, frozen=True, kw_only=True):
    timeout: float | None
    verbose: bool
    debug: bool


@click.command(
    short_help="Serve any agent over the Agent Client Protocol on stdio.",
    epilog=examples(
        "assay headless -s demo",
        "assay capture evals/prompts.jsonl -o served.jsonl -- assay headless -s demo",
    ),
)
@with_options(agent_options, text_agent_options)
@click.option(
    "-t",
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Time limit for each prompt, in milliseconds. "
    f"Default: the schema's limit, or {DEFAULT_TIMEOUT_MS}.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print progress to stderr.")
@click.option("--debug", is_flag=True, help=DEBUG_HELP)
@help_option
def command(**values: Any) -> None:
    """Speak the Agent Client Protocol on stdin and stdout, and pass the prompts on to the agent.

    It runs until stdin ends or a signal such as Ctrl-C, and then stops all its agents.
    """
    options = HeadlessOptions(**values)
    agent = agent_ref(options)
    adapter = plugins.adapter(agent)
    timeout_ms = options.timeout or adapter.timeout_ms or DEFAULT_TIMEOUT_MS
    log = _log if options.verbose or options.debug else _ignore
    with tempfile.TemporaryDirectory(prefix="assay-headless-", ignore_cleanup_errors=True) as raw:
        limits = Limits(turn_s=timeout_ms / 1000)
        context = ServerContext(
            adapter=adapter,
            open_conversation=partial(
                _open_traced if options.debug else open_conversation,
                *(agent, adapter, limits, Path(raw)),
            ),
            judge=partial(extract, adapter=adapter),
        )
        stop_at_signals()
        outbox = Outbox(write_stdout)
        server = AcpServer(context, outbox, __version__, log)
        try:
            try:
                for line in read_lines(sys.stdin.fileno()):
                    server.take(line)
            finally:
                ignore_signals()  # one that came with the end of stdin is raised here
        except KeyboardInterrupt:
            log("interrupted")
        finally:
            server.close()
            outbox.close()


def open_conversation(
    agent: PluginRef,
    adapter: Adapter,
    limits: Limits,
    raw_dir: Path,
    name: str,
    cwd: str,
    on_step: OnStep,
) -> Conversation:
    """Make a conversation for one session; its adapter may write files below raw_dir."""
    spec = TrialSpec(
        prompt=Prompt(id=name, input=""),
        agent=agent,
        benchmark=PluginRef(name="prompts"),
        limits=limits,
        surroundings=Surroundings(cwd=cwd),
        folder=name,
        run_token=raw_dir.name,
    )
    places = Places(RawStreams(None), cwd, None, str(raw_dir / name))
    mark = Mark(f"{spec.run_token}.{spec.folder}")
    return Conversation(spec, adapter, places, {}, mark, on_step)


def _open_traced(*args: Any) -> Conversation:
    conversation = open_conversation(*args)
    conversation.trace = DebugTrace()
    return conversation


def _log(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


def _ignore(text: str) -> None:
    """Discard a line of the log."""
