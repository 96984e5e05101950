"""assay explain: why trials failed, with the steps that show it."""

import secrets
from pathlib import Path

import click
import msgspec

from assay import plugins
from assay.cli.help import examples
from assay.cli.output import derived_output, echo_folded, refuse_inputs
from assay.cli.parameters import (
    DASH,
    InFile,
    debug_option,
    help_option,
    labelled_option,
    output_option,
    replace_option,
)
from assay.cli.runs import name_runs, pipes_as_files, with_arms
from assay.compare.expected import read_expectations
from assay.compare.explain import explain_files
from assay.compare.model_labels import label_question, read_label
from assay.errors import PluginError
from assay.records.explanation import ExplainedTrial, Explanation, ModelLabel
from assay.records.trial.views import ExplainedRow
from assay.report.explain import explain_lines


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[str, ...]
    labelled: tuple[str, ...]
    as_json: bool
    most: int
    prompts: Path | None
    judge: str | None
    timeout_s: float
    output: Path | None
    overwrite: bool
    debug: bool


@click.command(
    short_help="Say why trials failed, with the steps that show it.",
    epilog=examples(
        "assay explain results.jsonl",
        "assay explain before.jsonl after.jsonl",
        "assay explain results.jsonl --json | jq '.clusters[0]'",
    ),
)
@click.argument("files", nargs=-1)
@labelled_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--most",
    type=click.IntRange(min=0),
    default=10,
    metavar="N",
    help="Print at most N single failures; --json has all. Default: 10.",
)
@click.option(
    "--prompts",
    type=InFile(DASH, exists=True),
    metavar="FILE",
    help="Take what graders expect from the prompts in this file, by id, to find out whether the "
    "agent has read it. Default: only what the rows say, which is the hint but no reference.",
)
@click.option(
    "--with-model",
    "judge",
    metavar="AGENT",
    help="Also put each failure to this agent, as -s takes it, or to the model of a judge, as in "
    "judge:model=gpt-5, and show its label apart from the others. A label counts only if the step "
    "that it quotes exists. This may cost money. Default: no model is asked.",
)
@click.option(
    "--model-timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    metavar="SECONDS",
    help="Wait this long for each label of --with-model. Default: 60.",
)
@output_option
@replace_option
@debug_option
@help_option
def command(**given: object) -> None:
    """Say why the trials in the files failed, each given as FILE, LABEL:FILE or with --run.

    Files are results of `assay capture`, `grade` or `trials`; the folder of an experiment's run
    stands for those of its arms. Detectors look for loops, missing
    tools, edited tests and the like in the steps of each failure; docs/explain.md has the list and
    how often each is right. Similar failures are grouped, and for a prompt that both passes and
    fails, the step is named after which its trials diverge. Passes that look dishonest are listed
    first.
    """
    options = _Options(**given)  # type: ignore[arg-type] # click gives what the options say
    named = name_runs(with_arms(options.files), options.labelled)
    if not named:
        msg = "Give at least one file with results."
        raise click.UsageError(msg)
    refuse_inputs(options.output, options.prompts, *(path for _, path in named))
    label = _Labeller(options) if options.judge else None
    with pipes_as_files(named) as files:
        found = explain_files(files, visit=label, expected=_expected(options.prompts))
    if options.as_json or options.output is not None:
        with derived_output(options.output, overwrite=options.overwrite) as out:
            out.write(_encoded(found, as_json=options.as_json, most=options.most))
        return
    for line in explain_lines(found, options.most):
        echo_folded(line)


def _expected(prompts: Path | None) -> dict[str, ExplainedRow]:
    if prompts is None:
        return {}
    return read_expectations(None if prompts == DASH else prompts)


def _encoded(found: Explanation, *, as_json: bool, most: int) -> bytes:
    if as_json:
        return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
    return "".join(f"{line}\n" for line in explain_lines(found, most)).encode()


class _Labeller:
    """Puts failures to a model, one after the other."""

    def __init__(self, options: _Options) -> None:
        named = options.judge or ""
        judge = plugins.grader(plugins.grader_ref(named)) if named.startswith("judge:") else None
        self._agent = (judge.asks if judge else None) or plugins.adapter_ref(named)
        plugins.adapter(self._agent)  # refuses an unknown one before anything is read
        self._timeout_s = options.timeout_s

    def __call__(self, trial: ExplainedTrial, row: ExplainedRow) -> None:
        from assay.pipeline.stages import AskingHost  # late: most calls ask nobody

        question = label_question(row, secrets.token_hex(16))
        try:
            answer = AskingHost().ask(self._agent, question, timeout_s=self._timeout_s)
        except PluginError as error:
            trial.model = ModelLabel(problem=f"no answer: {error.message}")
            return
        trial.model = read_label(answer, row)
