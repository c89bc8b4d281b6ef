"""The command line: ``workbench demo``, ``workbench version``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from workbench import __version__
from workbench.errors import WorkbenchError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Rollouts from a pool of vLLM replicas on Ray.",
    pretty_exceptions_enable=False,
)


@app.command()
def demo(
    model: Annotated[
        str, typer.Option(help="Packaged name, local directory or hub id.")
    ] = "smollm2-135m",
    replicas: Annotated[int, typer.Option(help="vLLM replicas to start.")] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; runs/<time> by default.")
    ] = None,
) -> None:
    """Start real replicas, play two batches of rollouts, write a report."""
    from workbench.demo import DemoSize, run_demo

    folder = out or Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    report = run_demo(DemoSize(model=model, replicas=replicas), folder)
    typer.echo(f"\nwritten to {folder}: trajectories.parquet, the batch tensors, report.html")
    typer.echo(f"open {report}")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Run a command; an error of ours is told in its own words, without a traceback."""
    try:
        app()
    except WorkbenchError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(1) from error
