"""From a file of rows to forecasts: `fit`, `forecast`, `impute` and `evaluate`."""

import csv
import dataclasses
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import narwhals as nw
import typer
from rich.markup import escape
from rich.table import Table

from ..forecasting import Forecaster, ForecasterConfig
from ..forecasting.frames import NIXTLA
from ..training.checkpoint import json_text
from .flags import Seed, flags_from
from .out import writable_file
from .screen import console

READERS = {".csv": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}

Data = Annotated[Path, typer.Argument(help="A CSV or Parquet file of rows.")]
Model = Annotated[Path, typer.Argument(help="A model file that `stochflow fit` wrote.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Write a CSV or Parquet file; without it, print.", callback=writable_file),
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
    console.print(f"model: [bold]{said}[/]   next: stochflow forecast {said} --horizon {forecaster.horizon_}")


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
    period: Annotated[str | None, typer.Option(help="Of a season, for the baseline of that name.")] = None,
    out: Out = None,
    time_format: Format = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """A rolling-origin back-test beside persistence and an exact Ornstein–Uhlenbeck fit."""
    frame = read_rows(data, time, time_format, names=(id, channel))
    forecaster = Forecaster(
        **dataclasses.asdict(config),
        horizon=_length(horizon),
        support=_support(positive, between),
        random_state=seed,
        progress=False if as_json else None,
    )
    scores = forecaster.backtest(
        frame,
        gaps=[_length(gap) for gap in gaps.split(",")],
        folds=refits,
        start=start,
        period=_length(period),
        **_columns(id, time, values, channel, static, past, future),
    )
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
    for name, value in card.items():
        if name not in ("held_out", "two_steps_for_one", "in_sample"):
            said = ", ".join(value) if isinstance(value, list) else str(value)
            table.add_row(name.replace("_", " "), escape(said))
    for channel, found in card.get("two_steps_for_one", {}).items():
        said = f"median moved by {found['moved']:.2f} std, intervals {found['width']:.2f} times as wide"
        table.add_row(f"two steps for one: {escape(channel)}", said)
    for channel, share in card.get("in_sample", {}).get("coverage_of_90", {}).items():
        table.add_row(f"within 90 %, rows of the fit: {escape(channel)}", f"{share:.1%}")
    if not card.get("held_out"):
        return [table]
    held = Table(
        "gap", "pairs", "channel", "within 90 %", "CRPS over the simple law's", title="On held-out rows"
    )
    for row in card["held_out"]:
        for channel, covered in row["coverage_of_90"].items():
            relative = row["relative_crps"][channel]
            held.add_row(row["gap"], str(row["pairs"]), escape(channel), f"{covered:.1%}", f"{relative:.3f}")
    return [table, held]


def read_rows(path: Path, time: str | None, time_format: str | None, *, names: Sequence[str | None]) -> Any:
    """A CSV or Parquet file as a data frame; text in the time column becomes datetimes. Columns that hold `names`, of
    series or channels, are read as text: 01 is not 1."""
    if READERS.get(path.suffix.lower()) is None:
        raise ValueError(f"{path} must end in {', '.join(READERS)}.")
    if not path.is_file():
        raise ValueError(f"there is no file {path}.")
    library = _library()
    try:
        frame = _read(library, path, [name or NIXTLA["id"] for name in names])
    except OSError:
        raise
    except Exception as error:  # of one library or the other, which need not be there
        raise ValueError(
            f"{path} cannot be read as {READERS[path.suffix.lower()]}: {_what_is_wrong(path, error)}."
        ) from None
    rows = nw.from_native(frame, eager_only=True)
    if len(rows.columns) == 1 and (mark := next((m for m in ";\t|" if m in rows.columns[0]), None)):
        raise ValueError(
            f"{path} has one column, {rows.columns[0]!r}: separate columns by commas, not by {mark!r}."
        )
    if time_format is None:
        return frame
    name = time or "ds"
    if name not in rows.columns:
        raise ValueError(f"there is no column {name!r}; the columns are {', '.join(rows.columns)}.")
    try:
        return rows.with_columns(rows[name].str.to_datetime(format=time_format)).to_native()
    except Exception:
        raise ValueError(
            f"time column {name!r} is not written as {time_format!r}: its first row is {rows[name][0]!r}."
        ) from None


def _names(forecaster: Forecaster) -> tuple[str | None, ...]:
    """The columns that hold names; none if the model was fitted on ids that are no text."""
    ids = [] if forecaster.past_ is None else forecaster.past_.ids
    columns = forecaster.columns_
    return (columns.id, columns.channel) if all(isinstance(name, str) for name in ids) else ()


def _read(library: Any, path: Path, names: Sequence[str]) -> Any:
    if READERS[path.suffix.lower()] == "Parquet":
        return library.read_parquet(path)
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        comments = sum(1 for _ in itertools.takewhile(lambda line: line.startswith("#"), file))
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(csv.reader(itertools.islice(file, comments, None)), [])
    text = [name for name in dict.fromkeys(names) if name in header]
    if library.__name__ == "polars":
        kinds = {name: library.String for name in text}
        options = {"try_parse_dates": True, "infer_schema_length": None, "schema_overrides": kinds}
        return library.read_csv(path, skip_rows=comments, **options)
    return library.read_csv(path, skiprows=comments, dtype=dict.fromkeys(text, str))


def _what_is_wrong(path: Path, error: Exception) -> str:
    """In our words if the file is empty or ragged, else the first line of the library's."""
    if not path.stat().st_size:
        return "it is empty"
    if READERS[path.suffix.lower()] == "CSV" and (found := _ragged(path)):
        return found
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _ragged(path: Path) -> str | None:
    """The first line that has more cells than the header, if there is one, or that there is no header."""
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        lines = csv.reader(file)
        comment = lambda row: not row or row[0].startswith("#")
        rows = ((lines.line_num, row) for row in itertools.dropwhile(comment, lines) if row)
        _, header = next(rows, (0, []))
        if not header:
            return "it has no header"
        longer = ((number, len(row)) for number, row in rows if len(row) > len(header))
        number, cells = next(longer, (0, 0))
    return f"line {number} has {cells} cells, the header {len(header)}" if cells else None


def write_rows(frame: Any, out: Path | None, as_json: bool) -> None:
    """To a file by its ending, or to the screen."""
    rows = nw.from_native(frame, eager_only=True)
    if out is not None:
        if READERS.get(out.suffix.lower()) is None:
            raise ValueError(f"{out} must end in {', '.join(READERS)}.")
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_name(out.name + ".part")
        try:
            (rows.write_parquet if READERS[out.suffix.lower()] == "Parquet" else rows.write_csv)(part)
            part.replace(out)
        finally:
            part.unlink(missing_ok=True)
    if as_json:
        print(json_text(rows.rows(named=True), default=str))
    elif out is not None:
        console.print(f"{len(rows)} rows: [bold]{escape(str(out))}[/]")
    else:
        table = Table(*map(escape, rows.columns))
        for row in rows.head(40).rows():
            table.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else escape(str(cell)) for cell in row))
        console.print(table)
        if len(rows) > 40:
            console.print(f"and {len(rows) - 40} more rows: write them with --out.")


def _library() -> Any:
    for name in ("polars", "pandas"):
        try:
            return __import__(name)
        except ModuleNotFoundError:
            continue
    raise ImportError("files of rows are read with polars or pandas: run `pip install stochflow[frames]`.")


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
