"""Files of rows, CSV or Parquet, as data frames and back."""

import csv
import errno
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
from rich.markup import escape
from rich.table import Table

from ..forecasting.frames import NIXTLA
from ..forecasting.times import as_moments
from ..training.checkpoint import json_text
from .screen import as_text, console

READERS = {".csv": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}
# The year comes first, as nobody mistakes it, and no time of day follows.
DATE = r"^\d{4}[-/.]\d{1,2}[-/.]\d{1,2}$"


def require_ending(path: Path) -> None:
    """A `ValueError` if the name of a file of rows does not say what it holds."""
    if READERS.get(path.suffix.lower()) is None:
        raise ValueError(f"{path} must end in {', '.join(READERS)}.")


def read_rows(path: Path, time: str | None, time_format: str | None, *, names: Sequence[str | None]) -> Any:
    """A CSV or Parquet file as a data frame. Columns that hold `names`, of series or channels, are read as text: 01 is
    not 1. Text in the time column becomes datetimes: by the format or, without one, as the forecaster reads text."""
    require_ending(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}.")
    library, name = _library(), time or NIXTLA["time"]
    try:
        frame = _read(library, path, [name or NIXTLA["id"] for name in names], name, time_format is not None)
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
        text = READERS[path.suffix.lower()] == "CSV" and name in rows.columns and len(rows)
        return rows.with_columns(_moments(rows[name])).to_native() if text else frame
    if name not in rows.columns:
        raise ValueError(f"there is no column {name!r}; the columns are {', '.join(rows.columns)}.")
    try:
        return rows.with_columns(rows[name].str.to_datetime(format=time_format)).to_native()
    except Exception:
        raise ValueError(
            f"time column {name!r} is not written as {time_format!r}: its first row is {rows[name][0]!r}."
        ) from None


def _read(library: Any, path: Path, names: Sequence[str], time: str, has_format: bool) -> Any:
    if READERS[path.suffix.lower()] == "Parquet":
        return library.read_parquet(path)
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        comments = sum(1 for _ in itertools.takewhile(lambda line: line.startswith("#"), file))
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(csv.reader(itertools.islice(file, comments, None)), [])
    # With a format 20240301 is a date, and no number.
    text = [name for name in dict.fromkeys([*names, time] if has_format else names) if name in header]
    if library.__name__ != "polars":
        return library.read_csv(path, skiprows=comments, dtype=dict.fromkeys(text, str))
    options = {"skip_rows": comments, "infer_schema_length": None}
    kinds = {name: library.String for name in text}
    if time in header and time not in text:
        # On its own, and without looking for dates: polars would take 03/01/2024 for the third of January.
        found = library.read_csv(path, columns=[time], **options)[time]
        kinds |= {time: library.String} if found.dtype == library.String else {}
    return library.read_csv(path, try_parse_dates=True, schema_overrides=kinds, **options)


def _moments(column: nw.Series) -> nw.Series:
    """A column of text as datetimes or, where the library knows them, as dates; one of numbers as it is."""
    if column.dtype != nw.String:
        return column
    column = column.str.strip_chars()
    moments = as_moments(column, f"time column {column.name!r}")
    dates = (
        column.implementation.is_polars() and column.str.contains(DATE).all() and not column.is_null().all()
    )
    return moments.cast(nw.Date) if dates else moments


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


def write_rows(frame: Any, out: Path | None, as_json: bool, *, quiet: bool = False) -> None:
    """To a file by its ending, or to the screen; a file that is written is said, unless `quiet`."""
    rows = nw.from_native(frame, eager_only=True)
    if out is not None:
        require_ending(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_name(out.name + ".part")
        try:
            (rows.write_parquet if READERS[out.suffix.lower()] == "Parquet" else rows.write_csv)(part)
            part.replace(out)
        except OSError as error:  # of polars', which have neither number nor file
            number = error.errno or int((re.findall(r"os error (\d+)", str(error)) or [errno.EIO])[0])
            raise OSError(number, os.strerror(number), os.fspath(out)) from error
        finally:
            part.unlink(missing_ok=True)
    if as_json:
        print(json_text(rows.rows(named=True), default=str))
    elif out is not None and quiet:
        return
    elif out is not None:
        console.print(f"{len(rows)} rows: [bold]{escape(str(out))}[/]")
    else:
        table = Table()
        for name in rows.columns:
            table.add_column(as_text(name))
        for row in rows.head(40).rows():
            table.add_row(*(as_text(f"{cell:.6g}" if isinstance(cell, float) else cell) for cell in row))
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
