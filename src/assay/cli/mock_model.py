"""assay mock-model: a scripted model that speaks as four providers do."""

from pathlib import Path

import click

from assay.errors import OutputError
from assay.testing.model.server import serve


@click.command(short_help="Serve a scripted model that speaks as four providers do.")
@click.argument("script", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("-p", "--port", type=click.IntRange(0, 65535), default=0, help="Else a free one.")
@click.option("--port-file", type=click.Path(path_type=Path), help="Write the port into it.")
@click.option("--log", type=click.Path(path_type=Path), help="Write each request into it, JSONL.")
@click.option("--log-bodies", is_flag=True, help="Whole requests in the log.")
@click.help_option("-h", "--help")
def command(
    script: Path, port: int, port_file: Path | None, log: Path | None, *, log_bodies: bool
) -> None:
    """Serve SCRIPT on 127.0.0.1 until Ctrl-C or SIGTERM; say the URL once it listens.

    One base URL for all: Anthropic Messages, OpenAI Responses and chat completions, Gemini.
    """
    try:
        serve(
            script,
            port,
            log,
            port_file,
            log_bodies=log_bodies,
            on_ready=lambda url: click.echo(url),
        )
    except OSError as error:
        msg = f"cannot serve {script}: {error.strerror or error}"
        raise OutputError(msg, hint="choose another --port, --port-file or --log") from error
