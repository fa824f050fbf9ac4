"""One self-contained HTML page of tables, figures and words: nothing to fetch, light or dark."""

import contextlib
import dataclasses
import html
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from .page import PAGE
from .svg import to_png, to_svg


@dataclasses.dataclass(frozen=True)
class Text:
    """Paragraphs, parted by empty lines, in a little Markdown: `#` to `###` headings, `-` lists, **bold**,
    *italic*, `code` and [links](https://…). Everything else is shown as it is written."""

    markdown: str


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells are words or numbers; a float is shown to three significant digits, numbers flush right.

    `best` names the row (from 0) to set in bold, if there is one.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str | int | float]]
    caption: str = ""
    best: int | None = None

    def __post_init__(self):
        for i, row in enumerate(self.rows):
            if len(row) != len(self.headers):
                raise ValueError(f"row {i} must have {len(self.headers)} cells; got {len(row)}.")


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure with a caption, drawn as vectors; `pixels=True` for a figure of many thousand lines that are
    not rasterised on their own, which then stands on white in a dark page too."""

    figure: Figure
    caption: str = ""
    pixels: bool = False


Section = Text | Table | Picture


def write_report(
    path: str | os.PathLike, title: str, sections: Sequence[Section], *, subtitle: str = ""
) -> Path:
    """Writes the page and returns its path. The file appears whole or not at all."""
    path = Path(path)
    body = "\n".join(_section(section, f"s{i}") for i, section in enumerate(sections))
    heading = f"<h1>{html.escape(title)}</h1>" + (
        f'<p class="lead">{_inline(subtitle)}</p>' if subtitle else ""
    )
    page = PAGE.substitute(title=html.escape(title), heading=heading, body=body)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        unfinished.write_text(page, encoding="utf-8")
        os.replace(unfinished, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
    return path


def _section(section: Section, name: str) -> str:
    match section:
        case Text():
            return _blocks(section.markdown)
        case Table():
            return _table(section)
        case Picture():
            return _picture(section, name)


def _picture(picture: Picture, name: str) -> str:
    alt = html.escape(picture.caption or "figure", quote=True)
    if picture.pixels:
        drawing = f'<img src="{to_png(picture.figure)}" alt="{alt}">'
    else:
        drawing = f'<div role="img" aria-label="{alt}">{to_svg(picture.figure, name)}</div>'
    width = picture.figure.get_size_inches()[0]
    caption = f"<figcaption>{_inline(picture.caption)}</figcaption>" if picture.caption else ""
    return f'<figure style="--width: {96 * width:.0f}px">{drawing}{caption}</figure>'


def _table(table: Table) -> str:
    numeric = [all(_is_number(row[i]) for row in table.rows) for i in range(len(table.headers))]
    classes = [' class="number"' if is_number else "" for is_number in numeric]
    head = "".join(f"<th{css} scope='col'>{_inline(cell)}</th>" for cell, css in zip(table.headers, classes))
    rows = "".join(
        f"<tr{' class=best' if i == table.best else ''}>"
        + "".join(f"<td{css}>{_cell(cell)}</td>" for cell, css in zip(row, classes))
        + "</tr>\n"
        for i, row in enumerate(table.rows)
    )
    caption = f"<caption>{_inline(table.caption)}</caption>" if table.caption else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody>"
    return f'<div class="table"><table>{caption}{body}</table></div>'


def _is_number(cell: str | int | float) -> bool:
    """A number, or words that read as one: "0.8 ± 0.7", "1,917", "—"."""
    return not isinstance(cell, str) or bool(re.fullmatch(r"[-−+±.,\d\s%×–—]+|nan|inf", cell))


def _cell(cell: str | int | float) -> str:
    if isinstance(cell, str):
        return _inline(cell)
    shown = f"{cell:,}" if isinstance(cell, int) else f"{cell:.3g}"
    return shown.replace("-", "−")


def _blocks(markdown: str) -> str:
    return "\n".join(_block(block.strip()) for block in re.split(r"\n\s*\n", markdown) if block.strip())


def _block(block: str) -> str:
    heading = re.fullmatch(r"(#{1,3}) (.+)", block)
    if heading:
        level = len(heading[1]) + 1  # the title is the page's only h1
        return f"<h{level}>{_inline(heading[2])}</h{level}>"
    lines = block.splitlines()
    if all(line.startswith("- ") for line in lines):
        return "<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _inline(words: str) -> str:
    words = html.escape(words, quote=True)
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", words)
    words = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", words)
    words = re.sub(r"\*(.+?)\*", r"<em>\1</em>", words)
    return re.sub(r"\[([^\]]+)\]\((https?://[^)\s]+)\)", r'<a href="\2">\1</a>', words)
