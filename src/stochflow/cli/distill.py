"""`stochflow distill` and `stochflow reproduce distill`."""

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..distillation import DistillConfig
from ..distillation.checks import check_shapes
from ..distillation.probe import first_line
from ..sde import SDE
from ..training.checkpoint import json_text, write_json
from .flags import Seed, flags_from
from .out import writable
from .screen import console

Out = Annotated[
    Path | None,
    typer.Option(
        help="Run folder, for checkpoints, the law (law.stochflow) and the comparison as JSON; by default it is named "
        "after the SDE.",
        callback=writable,
    ),
]
# What the law is called in its run folder.
LAW = "law.stochflow"
OUTCOME = "outcome.json"
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")]


def register(app: typer.Typer, reproduce: typer.Typer) -> None:
    """Add the commands."""
    app.command("distill")(flags_from(DistillConfig)(distill_file))
    reproduce.command("distill")(reproduce_distill)


def _positive(flag: typer.CallbackParam, value: float) -> float:
    """The callback of a flag that is a length of time."""
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"{flag.opts[0]} must be positive and finite; got {value:g}.")
    return value


def distill_file(
    config: DistillConfig,
    source: Annotated[
        str, typer.Argument(help="`file.py:name` of an SDE, or of a function that returns one.")
    ],
    horizon: Annotated[float, typer.Option(help="The longest gap.", callback=_positive)],
    low: Annotated[
        str | None, typer.Option(help="Lower corner of the box of starts, such as '0,0.01'.")
    ] = None,
    high: Annotated[str | None, typer.Option(help="Upper corner of that box.")] = None,
    starts: Annotated[
        str | None,
        typer.Option(
            help="In place of a box: `file.py:name` of an array of states, or of a function of a key that draws one."
        ),
    ] = None,
    positive: Annotated[str, typer.Option(help="Coordinates that are positive, such as '1' or '0,1'.")] = "",
    between: Annotated[
        list[str] | None,
        typer.Option(help="A coordinate and its bounds, such as '0:-2:2' or '1:0:inf'; as often as needed."),
    ] = None,
    out: Out = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Distil an SDE of your own: a law in a run folder, and how it compares with the solver."""
    import jax.random as jr

    from ..distillation import compare, distill
    from ..io import save

    sde = load_sde(source)
    path, _, name = source.rpartition(":")
    out = Path(f"{Path(path).stem}-{name}") if out is None else out
    train_key, compare_key = jr.split(jr.key(seed))
    distilled = distill(
        sde,
        starts=_starts(starts, low, high),
        horizon=horizon,
        support=_support(sde.dim, positive, between or []),
        config=config,
        folder=out,
        progress=False if as_json else None,
        key=train_key,
    )
    about = {"sde": source, "horizon": distilled.horizon, "dt": distilled.dt, "solver": distilled.solver}
    save(
        out / LAW, distilled.flow, about=about | {"seed": seed}
    )  # before the comparison, which takes a while
    comparison = compare(distilled, key=compare_key)
    write_json(out / "comparison.json", comparison.as_dict())
    if as_json:
        print(json_text(comparison.as_dict() | {"law": str(out / LAW)}))
    else:
        print(comparison)
        console.print(f"the law is in {out / LAW}: read it with stochflow.io.load", highlight=False)


def _starts(starts: str | None, low: str | None, high: str | None):
    """A box, or what a file holds."""
    if starts is None:
        if low is None or high is None:
            raise typer.BadParameter("say where paths start: --low and --high, or --starts file.py:name.")
        corners = _numbers("low", low, float), _numbers("high", high, float)
        if any(not a < b for a, b in zip(*corners, strict=False)):
            raise typer.BadParameter(
                f"--low must be below --high, number by number; got {low!r} and {high!r}."
            )
        return corners
    if low is not None or high is not None:
        raise typer.BadParameter("--starts takes the place of --low and --high: leave those out.")
    return _named(starts)


def _support(dim: int, positive: str, between: list[str]) -> list:
    """What each coordinate may be."""
    found: list = ["real"] * dim
    given: list[tuple[int, Any]] = [(i, "positive") for i in _numbers("positive", positive, int)]
    for text in between:
        try:
            i, low, high = text.split(":")
            given.append((int(i), (float(low), float(high))))
        except ValueError:
            raise typer.BadParameter(
                f"--between must be like '0:-2:2', a coordinate and its bounds; got {text!r}."
            ) from None
    for i, interval in given:
        if not 0 <= i < dim:
            raise typer.BadParameter(f"there is no coordinate {i}; they are 0 to {dim - 1}.")
        found[i] = interval
    return found


def reproduce_distill(
    only: Annotated[list[str] | None, typer.Option(help="Examples to run; all by default.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Updates, in place of each example's own.")] = None,
    out: Annotated[
        Path,
        typer.Option(help="Folder for checkpoints and figures, one within it an example.", callback=writable),
    ] = Path("runs/distill"),
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
        outcome = study.run_example(
            known[name],
            steps=steps,
            folder=out / name,
            seed=seed,
            progress=False if as_json else None,
        )
        outcomes[name] = outcome.as_dict()
        write_json(out / name / OUTCOME, outcomes[name])
        if not as_json:
            headers, rows = outcome.comparison.rows()
            table = Table(*headers, title=name)
            for row in rows:
                table.add_row(*row)
            console.print(table)
            console.print(outcome.comparison.summary(), highlight=False)
    if as_json:
        print(json_text({"seed": seed, "machine": study.machine(), "examples": outcomes}))


def load_sde(source: str) -> SDE:
    """The SDE that `file.py:name` names, with a drift and a diffusion that can be called."""
    path, _, name = source.rpartition(":")
    found = _named(source)
    made = _called(found, path, name) if callable(found) and not isinstance(found, SDE) else found
    if not isinstance(made, SDE):
        raise typer.BadParameter(
            f"{name!r} in {path} must be an SDE, or a function that returns one; got {made!r}."
        )
    try:
        check_shapes(made)
    except ValueError as error:
        raise ValueError(f"{name!r} in {path}: {error}") from error
    return made


def _called(function: Callable, path: str, name: str) -> Any:
    """What a function of the user's returns."""
    try:
        needed = [p.name for p in inspect.signature(function).parameters.values() if _is_needed(p)]
    except (TypeError, ValueError):  # of a few that are not written in Python
        needed = []
    if needed:
        raise ValueError(
            f"{name!r} in {path} must be an SDE, or a function without arguments that returns one; it needs "
            f"{', '.join(needed)}."
        )
    try:
        return function()
    except Exception as error:  # whatever it raises
        raise ValueError(f"{name!r} in {path} failed when it was called: {first_line(error)}.") from error


def _is_needed(parameter: inspect.Parameter) -> bool:
    optional = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not optional


def _named(source: str) -> Any:
    """What `file.py:name` names; the file is run."""
    path, _, name = source.rpartition(":")
    if not path or not name:
        raise typer.BadParameter(f"give a file and a name in it, `file.py:name`; got {source!r}.")
    if not Path(path).is_file():
        raise typer.BadParameter(f"there is no file {path!r}; give a file and a name in it, `file.py:name`.")
    # Under a name that no module has, with those beside it at hand, as of any script.
    spec = importlib.util.spec_from_file_location(f"_distilled_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"{path} is no file of Python's; its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if (beside := str(Path(path).resolve().parent)) not in sys.path:
        sys.path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise typer.BadParameter(f"{path} cannot be run ({type(error).__name__}: {reason}).") from error
    if name not in vars(module):
        known = ", ".join(key for key in vars(module) if not key.startswith("_"))
        raise typer.BadParameter(f"there is no {name!r} in {path}; it has {known}.")
    return vars(module)[name]


def _numbers(name, text, kind):
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise typer.BadParameter(f"--{name} must be numbers with commas between; got {text!r}.") from None
