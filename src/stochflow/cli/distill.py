"""`stochflow distill` and `stochflow reproduce distill`."""

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..distillation import DistillConfig
from ..sde import SDE
from ..training.checkpoint import json_text, write_json
from .flags import flags_from
from .out import writable
from .screen import console

Out = Annotated[
    Path | None,
    typer.Option(help="Run folder, for checkpoints and the comparison as JSON.", callback=writable),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")]


def register(app: typer.Typer, reproduce: typer.Typer) -> None:
    """Add the commands."""
    app.command("distill")(flags_from(DistillConfig)(distill_file))
    reproduce.command("distill")(reproduce_distill)


def distill_file(
    config: DistillConfig,
    source: Annotated[
        str, typer.Argument(help="`file.py:name` of an SDE, or of a function that returns one.")
    ],
    low: Annotated[str, typer.Option(help="Lower corner of the starts, such as '0,0.01'.")],
    high: Annotated[str, typer.Option(help="Upper corner of the starts.")],
    horizon: Annotated[float, typer.Option(help="The longest gap.")],
    positive: Annotated[str, typer.Option(help="Coordinates that are positive, such as '1' or '0,1'.")] = "",
    out: Out = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Distil an SDE of your own: a flow in a run folder, and how it compares with the solver."""
    import jax.random as jr

    from ..distillation import compare, distill

    sde = load_sde(source)
    chosen = set(_numbers("positive", positive, int))
    train_key, compare_key = jr.split(jr.key(seed))
    distilled = distill(
        sde,
        starts=(_numbers("low", low, float), _numbers("high", high, float)),
        horizon=horizon,
        support=["positive" if i in chosen else "real" for i in range(sde.dim)],
        config=config,
        folder=out,
        progress=False if as_json else None,
        key=train_key,
    )
    comparison = compare(distilled, key=compare_key)
    if out is not None:
        write_json(out / "comparison.json", comparison.as_dict())
    print(json_text(comparison.as_dict()) if as_json else comparison)


def reproduce_distill(
    only: Annotated[list[str] | None, typer.Option(help="Examples to run; all by default.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Updates, in place of each example's own.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Five SDEs distilled: distance to the solver, calibration, speed, break-even."""
    from ..experiments import distill as study

    known = study.examples()
    if strangers := [name for name in only or [] if name not in known]:
        raise typer.BadParameter(f"no example {strangers[0]!r}; the examples are {', '.join(known)}.")
    outcomes = {}
    for name in only or known:
        outcome = study.run_example(known[name], steps=steps, seed=seed, progress=False if as_json else None)
        outcomes[name] = outcome.as_dict()
        if not as_json:
            headers, rows = outcome.comparison.rows()
            table = Table(*headers, title=name)
            for row in rows:
                table.add_row(*row)
            console.print(table)
            last = str(outcome.comparison).splitlines()[-1]
            console.print(last, highlight=False)
    if as_json:
        print(json_text({"seed": seed, "machine": study.machine(), "examples": outcomes}))


def load_sde(source: str) -> SDE:
    """The SDE that `file.py:name` names."""
    path, _, name = source.rpartition(":")
    if not path or not name or not Path(path).is_file():
        raise typer.BadParameter(f"give a file and a name in it, `file.py:name`; got {source!r}.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = vars(module).get(name)
    made = found() if callable(found) and not isinstance(found, SDE) else found
    if not isinstance(made, SDE):
        raise typer.BadParameter(
            f"{name!r} in {path} must be an SDE, or a function that returns one; got {made!r}."
        )
    return made


def _numbers(name, text, kind):
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise typer.BadParameter(f"--{name} must be numbers with commas between; got {text!r}.") from None
