"""The command line: ``workbench demo | up | status | dashboard | down | version``."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench import __version__
from workbench.errors import ConfigError, WorkbenchError

if TYPE_CHECKING:
    from workbench.cluster.registry import PoolEntry
    from workbench.metrics.feed import Feed

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Rollouts from a pool of vLLM replicas on Ray.",
    pretty_exceptions_enable=False,
)

Model = Annotated[str, typer.Option(help="Packaged name, local directory or hub id.")]
RayAddress = Annotated[
    str | None,
    typer.Option(help="A Ray cluster; else RAY_ADDRESS, else pools of this machine."),
]


@app.command()
def demo(
    model: Model = "smollm2-135m",
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
def up(
    model: Model = "smollm2-135m",
    replicas: Annotated[int, typer.Option(help="Replicas to start.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Under which others attach; made up by default.")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster; else RAY_ADDRESS, else one is started.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="vllm; simulated is for tests and overhead measurements.")
    ] = "vllm",
    oversubscribe: Annotated[
        bool, typer.Option(help="Allow more replicas than cores, where there are no GPUs.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option(help="Keep it until Ctrl-C, and end it then.")
    ] = False,
) -> None:
    """Start a pool that stays until ``workbench down``."""
    from workbench.facade import Workbench

    with Workbench(
        model,
        replicas,
        name=name,
        address=ray_address,
        engine=engine,
        oversubscribe=oversubscribe,
        detached=not foreground,
        workers=0,
    ) as bench:
        entry = bench.manager.entry
        typer.echo(f"{bench}")
        typer.echo(f"attach:    Workbench(name={entry.name!r})")
        typer.echo(f"           from elsewhere in the cluster with address={entry.address!r}")
        typer.echo(f"dashboard: workbench dashboard --name {entry.name}")
        if foreground:
            _until_interrupted("the pool")
        else:
            typer.echo(f"end it:    workbench down --name {entry.name}")


@app.command()
def down(
    name: Annotated[
        str | None, typer.Option(help="The pool's; not needed where only one runs.")
    ] = None,
    ray_address: RayAddress = None,
) -> None:
    """End a pool, whoever started it; nothing of it is left."""
    from workbench.cluster.ending import end_pool

    entry = end_pool(name or _only_name(ray_address), ray_address)
    typer.echo(f"{entry.name} is down")


@app.command()
def status(
    name: Annotated[str | None, typer.Option(help="One pool, replica by replica.")] = None,
    ray_address: RayAddress = None,
) -> None:
    """Show the pools that run."""
    if name is None:
        from workbench.cluster.lookup import pools

        found = pools(ray_address)
        for entry in found:
            typer.echo(_line(entry))
        if not found:
            typer.echo("no pool runs")
        return
    from workbench.facade.opening import reach_pool
    from workbench.facade.tables import replica_frame

    with contextlib.ExitStack() as stack:
        reach = reach_pool(stack, name, ray_address)
        typer.echo(_line(reach.manager.entry))
        pool = reach.call(reach.manager.snapshot())
        typer.echo(replica_frame(pool).to_string(index=False, na_rep="–"))


@app.command()
def dashboard(
    name: Annotated[
        str | None, typer.Option(help="The pool's; not needed where only one runs.")
    ] = None,
    address: Annotated[
        str, typer.Option(help="To listen on. Off loopback a password is asked for.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="To listen on; 0 for any that is free.")] = 0,
    prefix: Annotated[str, typer.Option(help="Path in front of every page.")] = "",
    password: Annotated[
        str | None,
        typer.Option(
            envvar="WORKBENCH_DASHBOARD_PASSWORD",
            help="Made up where one is needed and none given.",
        ),
    ] = None,
    ray_address: RayAddress = None,
    on_cluster: Annotated[
        bool, typer.Option(help="Serve it from the pool's cluster, and end with the pool.")
    ] = False,
    control: Annotated[
        bool, typer.Option(help="Have a page on which whoever may look may manage the pool.")
    ] = False,
    from_: Annotated[
        Path | None, typer.Option("--from", help="Show a saved feed instead of a pool.")
    ] = None,
) -> None:
    """Show a pool's dashboard until Ctrl-C."""
    options = {"address": address, "port": port, "prefix": prefix, "password": password}
    if from_ is not None:
        if name is not None or on_cluster or control or ray_address is not None:
            raise ConfigError("from", "shows no pool that runs", allowed="no pool beside it")
        from workbench.metrics.feed import Feed

        _serve(Feed.open(from_), options)
        return
    from workbench.facade.opening import reach_pool

    with contextlib.ExitStack() as stack:
        reach = reach_pool(stack, name or _only_name(ray_address), ray_address)
        if on_cluster:
            _tell(reach.call(reach.manager.host("dashboard", options | {"control": control})))
            return
        from workbench.cluster.verbs import ManagerVerbs

        verbs = ManagerVerbs(reach.manager, reach.call) if control else None
        _serve(reach.feed, options | {"control": verbs})


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


def _line(entry: PoolEntry) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.created_s))
    return f"{entry.name}: {entry.model}, since {since}, {entry.phrase}, Ray at {entry.address}"


def _only_name(ray_address: str | None) -> str:
    from workbench.cluster.lookup import pools

    names = [entry.name for entry in pools(ray_address)]
    if len(names) != 1:
        problem = "several pools run" if names else "no pool runs"
        raise ConfigError("name", problem, allowed=names)
    return names[0]


def _serve(feed: Feed, options: dict[str, Any]) -> None:
    """Until it is interrupted."""
    from workbench.views import view

    served = view("dashboard")(feed, **options)
    try:
        _tell(served)
        _until_interrupted("the dashboard")
    finally:
        served.close()


def _tell(served: Any) -> None:
    """Where a dashboard is, and what it asks for."""
    asked = f" (password: {served.password})" if served.password else ""
    typer.echo(f"dashboard: {served.url}{asked}")


def _until_interrupted(what: str) -> None:
    typer.echo(f"Ctrl-C ends {what}")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
