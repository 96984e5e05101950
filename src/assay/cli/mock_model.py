"""assay mock-model: a scripted model that speaks as four providers do."""

from pathlib import Path

import click

from assay.cli.help import examples
from assay.cli.parameters import InFile, OutFile, help_option
from assay.errors import OutputError
from assay.testing.model.server import serve


@click.command(
    short_help="Serve a scripted model, to test agents without a real one.",
    epilog=examples(
        "assay mock-model script.json",
        "assay mock-model script.json --port-file port.txt --log requests.jsonl",
    ),
)
@click.argument("script", type=InFile(stdin=Path("/dev/stdin"), exists=True))
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port to listen on. Default: 0, which picks a free port.",
)
@click.option(
    "--port-file",
    type=OutFile(stdout=Path("/dev/stdout")),
    metavar="FILE",
    help="Write the port number to this file.",
)
@click.option(
    "--log",
    type=OutFile(stdout=Path("/dev/stdout")),
    metavar="FILE",
    help="Log each request to this file, as JSONL.",
)
@click.option("--log-bodies", is_flag=True, help="Log the whole bodies of requests.")
@help_option
def command(
    script: Path, port: int, port_file: Path | None, log: Path | None, *, log_bodies: bool
) -> None:
    """Serve the answers in SCRIPT on 127.0.0.1 until Ctrl-C or SIGTERM, and print the URL.

    The URL serves Anthropic Messages, OpenAI Responses and chat completions, and Gemini.
    """
    try:
        serve(
            script,
            port,
            log,
            port_file,
            log_bodies=log_bodies,
            on_ready=click.echo,
        )
    except OSError as error:
        msg = f"cannot serve {script}: {error.strerror or error}"
        raise OutputError(msg, hint="choose another --port, --port-file or --log") from error
