"""assay trials: every prompt several times, for pass@k."""

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
from assay.pipeline.stages import capture_all, gather_trials
from assay.pipeline.trials import TrialStore, trial_entry
from assay.records.rows import encode_row


@click.command(
    cls=AfterDashes,
    short_help="Run every prompt several times, to measure pass@k.",
    epilog=examples(
        "assay trials evals/prompts.jsonl -s demo:flaky -g contains -k 3 -o before.jsonl",
        "assay trials evals/prompts.jsonl -s demo:better -g contains -k 3 -j 4 -o after.jsonl",
    ),
)
@click.argument("prompts", nargs=-1)
@with_options(agent_options, output_options, grader_options)
@click.option(
    "-k",
    "--k",
    "k",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    help="Run each prompt N times. Default: 5.",
)
@click.option(
    "--stdin", "from_stdin", is_flag=True, help="Read the prompts from stdin instead of a file."
)
@with_options(run_options)
@click.help_option("-h", "--help")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run every prompt in the file PROMPTS k times and write one JSON line per prompt.

    Each line holds all trials of its prompt. Trials of the same prompt may run at the same time,
    and each is saved as soon as it has finished. The agent is given as for assay capture.
    """
    path = prompt_path(options["prompts"], from_stdin=options["from_stdin"])
    agent = chosen_agent(ctx, options)
    graders = grader_refs(options)
    k: int = options["k"]
    batch = Batch(path, agent, options, k=k)
    with (
        open_sink(batch.output, batch.mode) as sink,
        TrialStore(batch.output, batch.mode) as store,
    ):
        batch.clear_leftovers()
        open_specs = sink.missing(batch.specs, k) if batch.mode == "resume" else batch.specs
        specs = store.missing(open_specs, k, batch.specs)
        for spec, entries in store.complete(open_specs, k):
            sink.append(encode_row(gather_trials(spec, entries, graded=bool(graders)), spec.extra))
        with batch.progress(specs) as progress:
            items = batch.affordable(specs, progress)
            hear = progress.on_step if progress.watches else None
            workers = batch.executor(specs)
            done = capture_all(items, workers, graders, options["retries"], hear)
            with closing(done):
                for spec, captured in done:
                    all_of_prompt = store.add(spec, trial_entry(spec.number, captured), k)
                    if all_of_prompt is not None:
                        row = gather_trials(spec, all_of_prompt, graded=bool(graders))
                        sink.append(encode_row(row, spec.extra))
                    progress.captured(captured, spec)
    batch.conclude(progress, specs)
