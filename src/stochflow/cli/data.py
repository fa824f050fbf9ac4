"""From a file of rows to forecasts: `fit`, `forecast`, `impute` and `evaluate`."""

import dataclasses
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..forecasting import Forecaster, ForecasterConfig
from ..training.checkpoint import json_text
from .flags import Seed, flags_from
from .out import writable_file, writable_rows
from .rows import read_rows, write_rows
from .screen import as_text, console

# The order in which a card is read; that of a file is by the alphabet.
CARD = (
    "kind", "why", "series", "rows", "channels", "from", "to", "longest_series", "horizon", "scaling",
    "training_seconds",
)  # fmt: skip

Data = Annotated[Path, typer.Argument(help="A CSV or Parquet file of rows.")]
Model = Annotated[Path, typer.Argument(help="A model file that `stochflow fit` wrote.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Write a CSV or Parquet file; without it, print.", callback=writable_rows),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Format = Annotated[str | None, typer.Option(help="Of the times, if they are text: such as '%m/%d/%Y'.")]
Names = Annotated[str | None, typer.Option(help="Columns, separated by commas.")]
Id = Annotated[str | None, typer.Option("--id", help="Column of ids; `unique_id` if there is one.")]
Time = Annotated[str | None, typer.Option(help="Column of times; `ds` if there is one.")]
Channel = Annotated[str | None, typer.Option(help="Column that says which channel a row is of.")]
Between = Annotated[
    list[str] | None,
    typer.Option(help="A column and its bounds, such as 'share:0:1' or 'debt:-inf:0'; as often as needed."),
]
Horizon = Annotated[str | None, typer.Option(help="The longest gap that is learnt in one step: '30d'.")]


def add_data_commands(app: typer.Typer) -> None:
    """Put the commands on the app."""
    app.command("fit")(fit)
    app.command("forecast")(forecast)
    app.command("impute")(impute)
    app.command("evaluate")(evaluate)


@flags_from(ForecasterConfig, explained_by=(Forecaster,))
def fit(
    config: ForecasterConfig,
    data: Data,
    out: Annotated[Path, typer.Option(help="The model file to write.", callback=writable_file)] = Path(
        "model.stochflow"
    ),
    id: Id = None,
    time: Time = None,
    values: Names = None,
    channel: Channel = None,
    static: Names = None,
    past: Names = None,
    future: Names = None,
    positive: Names = None,
    between: Between = None,
    horizon: Horizon = None,
    time_format: Format = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Learn a forecaster from a file of rows and write it to a model file.

    Interrupted, it leaves what it has learnt beside the model file; the same command goes on from there.
    """
    frame = read_rows(data, time, time_format, names=(id, channel))
    columns = _columns(id, time, values, channel, static, past, future)
    forecaster = Forecaster(
        **dataclasses.asdict(config),
        horizon=_length(horizon),
        support=_support(positive, between),
        random_state=seed,
        progress=False if as_json else None,
    )
    run = out.with_name(out.name + ".run")
    anew = not run.exists()
    try:
        forecaster.fit(frame, **columns, folder=run)
        forecaster.save(out)
    except OSError:
        if anew:  # on a full disk there is no checkpoint to keep
            shutil.rmtree(run, ignore_errors=True)
        raise
    shutil.rmtree(run, ignore_errors=True)
    if as_json:
        print(json_text({"model": str(out)} | forecaster.card_))
        return
    print_card(forecaster.card_)
    said = escape(str(out))
    console.print(
        f"model: [bold]{said}[/]   next: stochflow forecast {said} --horizon {forecaster.card_['horizon']}"
    )


def forecast(
    model: Model,
    data: Annotated[
        Path | None, typer.Option(help="The past of the series; that of the fit by default.")
    ] = None,
    horizon: Annotated[str | None, typer.Option(help="How far ahead: '7d'.")] = None,
    every: Annotated[str | None, typer.Option(help="At each of these: '6h'.")] = None,
    times: Annotated[str | None, typer.Option(help="Or at these times, separated by commas.")] = None,
    future: Annotated[Path | None, typer.Option(help="Covariates known ahead.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="So many draws, a row each.")] = None,
    quantiles: Annotated[str | None, typer.Option(help="Such as 0.05,0.5,0.95.")] = None,
    interval: Annotated[float | None, typer.Option(help="Such as 0.9.")] = None,
    paths: Annotated[bool, typer.Option(help="Draw whole paths.")] = False,
    out: Out = None,
    time_format: Format = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Forecasts of a fitted model."""
    forecaster = Forecaster.load(model)
    time = forecaster.columns_.time
    read = lambda path: None if path is None else read_rows(path, time, time_format, names=_names(forecaster))
    found = forecaster.predict(
        read(data),
        horizon=_length(horizon),
        every=_length(every),
        times=None if times is None else [_number(each) for each in times.split(",")],
        future=read(future),
        samples=samples,
        quantiles=None if quantiles is None else _numbers(quantiles, "quantiles"),
        interval=interval,
        paths=paths,
        random_state=seed,
    )
    write_rows(found, out, as_json)


def impute(
    model: Model,
    data: Data,
    out: Out = None,
    times: Annotated[
        str | None, typer.Option(help="Rows at these times instead, separated by commas.")
    ] = None,
    samples: Annotated[int, typer.Option(min=2, help="Draws behind each median and interval.")] = 200,
    time_format: Format = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The rows with what is missing filled in, from both sides."""
    forecaster = Forecaster.load(model)
    frame = read_rows(data, forecaster.columns_.time, time_format, names=_names(forecaster))
    at = None if times is None else [_number(each) for each in times.split(",")]
    write_rows(forecaster.impute(frame, times=at, samples=samples, random_state=seed), out, as_json)


@flags_from(ForecasterConfig, explained_by=(Forecaster,))
def evaluate(
    config: ForecasterConfig,
    data: Data,
    gaps: Annotated[str, typer.Option(help="How far ahead, separated by commas: '1d,7d,28d'.")],
    id: Id = None,
    time: Time = None,
    values: Names = None,
    channel: Channel = None,
    static: Names = None,
    past: Names = None,
    future: Names = None,
    positive: Names = None,
    between: Between = None,
    horizon: Horizon = None,
    refits: Annotated[int, typer.Option(min=1, help="How often everything is fitted anew.")] = 4,
    start: Annotated[float, typer.Option(help="The share of the rows that the first fit sees.")] = 0.6,
    origins: Annotated[
        int, typer.Option(min=1, help="Of each series, the most rows to forecast from in each stretch.")
    ] = 400,
    samples: Annotated[int, typer.Option(min=2, help="Draws behind each forecast.")] = 200,
    period: Annotated[str | None, typer.Option(help="Of a season, for the baseline of that name.")] = None,
    forecasts: Annotated[
        Path | None,
        typer.Option(help="Write each forecast, and what came, to a file too.", callback=writable_rows),
    ] = None,
    out: Out = None,
    time_format: Format = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """A rolling-origin back-test beside persistence and an exact Ornstein–Uhlenbeck fit."""
    if out is not None and forecasts is not None and out.absolute() == forecasts.absolute():
        raise ValueError(f"--out and --forecasts must be different files; both are {out}.")
    frame = read_rows(data, time, time_format, names=(id, channel))
    forecaster = Forecaster(
        **dataclasses.asdict(config),
        horizon=_length(horizon),
        support=_support(positive, between),
        random_state=seed,
        progress=False if as_json else None,
    )
    found = forecaster.backtest(
        frame,
        gaps=[_length(gap) for gap in gaps.split(",")],
        folds=refits,
        start=start,
        origins=origins,
        samples=samples,
        period=_length(period),
        return_forecasts=forecasts is not None,
        **_columns(id, time, values, channel, static, past, future),
    )
    if forecasts is None:
        write_rows(found, out, as_json)
        return
    scores, each = found
    write_rows(each, forecasts, as_json=False, quiet=as_json)
    write_rows(scores, out, as_json)


def _columns(id, time, values, channel, static, past, future) -> dict[str, Any]:
    """As `Forecaster.fit` has them."""
    covariates = {"static": static, "past": past, "future": future}
    named = {"id": id, "time": time, "values": _listed(values), "channel": channel}
    return named | {name: _listed(given) or () for name, given in covariates.items()}


def _support(positive: str | None, between: list[str] | None) -> dict[str, Any] | None:
    """What columns may be."""
    found: dict[str, Any] = dict.fromkeys(_listed(positive) or [], "positive")
    for text in between or []:
        name, *bounds = text.rsplit(":", 2)
        try:
            low, high = map(float, bounds)
        except ValueError:
            raise typer.BadParameter(
                f"--between must be like 'share:0:1', a column and its bounds; got {text!r}."
            ) from None
        found[name] = (low, high)
    return found or None


def print_card(card: dict[str, Any]) -> None:
    """A model card as tables."""
    try:
        tables = _card_tables(card)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("the model card in that file is not one: save the model again.") from None
    for table in tables:
        console.print(table)


def _card_tables(card: dict[str, Any]) -> list[Table]:
    table = Table("", "", title="Model card", show_header=False)
    add = lambda name, said: table.add_row(as_text(name), as_text(said))
    place = {name: i for i, name in enumerate(CARD)}
    for name, value in sorted(card.items(), key=lambda item: place.get(item[0], len(CARD))):
        if name not in ("held_out", "two_steps_for_one", "in_sample", "at_once"):
            add(name.replace("_", " "), ", ".join(value) if isinstance(value, list) else value)
    for channel, found in card.get("two_steps_for_one", {}).items():
        said = f"median moved by {found['moved']:.2f} std, intervals {found['width']:.2f} times as wide"
        add(f"two steps for one: {channel}", said)
    for channel, effects in card.get("at_once", {}).items():
        for covariate, effect in effects.items():
            add(f"{channel}, one more of {covariate}", f"{effect:+.4g} at once")
    for channel, share in card.get("in_sample", {}).get("coverage_of_90", {}).items():
        add(f"within 90 %, rows of the fit: {channel}", f"{share:.1%}")
    if not card.get("held_out"):
        return [table]
    held = Table(
        "gap", "pairs", "channel", "within 90 %", "CRPS over the simple law's", title="On held-out rows"
    )
    for row in card["held_out"]:
        for channel, covered in row["coverage_of_90"].items():
            relative = row["relative_crps"][channel]
            said = row["gap"], row["pairs"], channel, f"{covered:.1%}", f"{relative:.3f}"
            held.add_row(*map(as_text, said))
    return [table, held]


def _names(forecaster: Forecaster) -> tuple[str | None, ...]:
    """The columns that hold names; none if the model was fitted on ids that are no text."""
    ids = [] if forecaster.past_ is None else forecaster.past_.ids
    columns = forecaster.columns_
    return (columns.id, columns.channel) if all(isinstance(name, str) for name in ids) else ()


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text.strip()


def _length(text: str | None) -> Any:
    """A length of time as it was written, or a number if it is one."""
    return None if text is None else _number(text)


def _numbers(text: str, name: str) -> list[float]:
    found = [_number(each) for each in text.split(",")]
    if not all(isinstance(each, float) for each in found):
        raise ValueError(f"`{name}` must be numbers separated by commas; got {text!r}.")
    return found
