"""assay capture: prompts in, full trajectories out."""

from contextlib import closing
from typing import Any

import click

from assay.cli.batch import Batch
from assay.cli.group import examples
from assay.cli.options import (
    agent_options,
    chosen_agent,
    grader_options,
    grader_refs,
    output_options,
    run_options,
    with_options,
)
from assay.cli.output import open_sink
from assay.cli.parameters import AfterDashes, prompt_path
from assay.pipeline.stages import capture_all
from assay.records.rows import encode_row


@click.command(
    cls=AfterDashes,
    short_help="Run prompts against an agent and record full trajectories.",
    epilog=examples(
        "assay capture evals/prompts.jsonl -s demo -g evals/grader.py -o results.jsonl",
        "assay capture evals/prompts.jsonl -s demo -o results.jsonl --resume",
        "assay capture evals/prompts.jsonl -j 4 -o acp.jsonl -- assay headless -s demo",
    ),
)
@click.argument("prompts", nargs=-1)
@with_options(agent_options, output_options, grader_options)
@click.option(
    "--stdin", "from_stdin", is_flag=True, help="Read the prompts from stdin instead of a file."
)
@with_options(run_options)
@click.help_option("-h", "--help")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run every prompt in the file PROMPTS against an agent and write one JSON line per trial.

    The agent is a schema file or the name of an adapter (-s), or a command after -- that
    speaks the Agent Client Protocol on stdio.
    """
    path = prompt_path(options["prompts"], from_stdin=options["from_stdin"])
    agent = chosen_agent(ctx, options)
    graders = grader_refs(options)
    batch = Batch(path, agent, options)
    with open_sink(batch.output, batch.mode) as sink:
        batch.clear_leftovers()
        specs = sink.missing(batch.specs) if batch.mode == "resume" else batch.specs
        with batch.progress(specs) as progress:
            items = batch.affordable(specs, progress)
            hear = progress.on_step if progress.watches else None
            workers = batch.executor(specs)
            done = capture_all(items, workers, graders, options["retries"], hear)
            with closing(done):
                for spec, captured in done:
                    sink.append(encode_row(captured, spec.extra))
                    progress.captured(captured, spec)
    batch.conclude(progress, specs)
