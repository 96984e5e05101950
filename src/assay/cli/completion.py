"""assay completion: the lines by which a shell completes command lines of Assay."""

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from assay.cli.help import examples, variables
from assay.cli.parameters import help_option

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_ASSAY_COMPLETE"
"""Set by these lines when the shell asks for what may follow."""


@click.command(
    short_help="Print what makes a shell complete command lines.",
    epilog=variables("SHELL", "The shell, if none is named.")
    + examples(
        "assay completion bash > assay.bash",
        "assay completion zsh > _assay",
        "assay completion fish > assay.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@help_option
def command(shell: str | None) -> None:
    """Print the lines by which SHELL completes commands, options, agents, graders and files.

    Without SHELL, that of the variable SHELL. In bash, load them in ~/.bashrc with
    `eval "$(assay completion bash)"`; zsh looks for _assay in the folders of its fpath, and fish
    for assay.fish in ~/.config/fish/completions.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in _SHELLS:
        msg = f"Name the shell: {', '.join(_SHELLS)}."
        raise click.UsageError(msg)
    # Not the method of the class, which starts bash to ask for its version.
    click.echo(
        ShellComplete.source(_completion(name, click.get_current_context().find_root().command))
    )


def answer(group: click.Group) -> None:
    """Print what may follow the words that the shell gives in variables."""
    shell = os.environ[_VARIABLE].partition("_")[0]
    if shell in _SHELLS:
        completion = _completion(shell, group)
        args, incomplete = completion.get_completion_args()
        found = completion.get_completions(args, incomplete)
        if not found and not incomplete.startswith("-"):
            found = [CompletionItem(incomplete, type="file")]
        for item in found:
            click.echo(completion.format_completion(item))


def _completion(shell: str, group: click.Command) -> ShellComplete:
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    return kind(group, {}, "assay", _VARIABLE)
