"""A report is one valid page with everything in it, written whole or not at all."""

import html.parser
import re

import matplotlib.style
import numpy as np
import pytest
from matplotlib.figure import Figure

from stochflow.plots import Picture, Table, Text, figure, reliability, report, write_report

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Checker(html.parser.HTMLParser):
    """Collects tags, ids and words; every tag must be closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.words = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(path) -> tuple[str, Checker]:
    page, checker = path.read_text(encoding="utf-8"), Checker()
    checker.feed(page)
    checker.close()
    assert page.startswith("<!DOCTYPE html>")
    assert not checker.open
    return page, checker


@pytest.fixture
def drawing():
    return draw()


def draw() -> Figure:
    return reliability({"lag 1": np.linspace(0, 1, 50)}).figure


def test_report_holds_every_section_and_fetches_nothing(drawing, tmp_path):
    sections = [
        Text("# Words\n\nSome **bold** and `code` with <b>tags</b>.\n\n- one\n- two"),
        Table(["law", "KL"], [["flow", -0.123456], ["paper", "0.8 ± 0.7"]], "A *table*.", best=0),
        Picture(drawing, "First."),
        Picture(drawing, "Second."),
        Picture(drawing, "As pixels.", pixels=True),
    ]
    page, checker = read(write_report(tmp_path / "report.html", "Title & more", sections, subtitle="Short."))
    assert checker.tags.count("svg") == 2
    assert page.count("data:image/png;base64,") == 1
    assert checker.tags.count("tr") == 3
    for part in (
        "<h2>Words</h2>",
        "<strong>bold</strong>",
        "&lt;b&gt;tags",
        "<li>two</li>",
        "−0.123",
        "<em>table</em>",
    ):
        assert part in page
    assert "Title & more" in checker.words
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "@import" not in page


def test_ids_are_unique_though_a_figure_comes_twice(drawing, tmp_path):
    page, checker = read(write_report(tmp_path / "r.html", "Twice", [Picture(drawing), Picture(drawing)]))
    assert len(set(checker.ids)) == len(checker.ids)
    for target in re.findall(r'(?:href="#|url\(#)([^")]+)', page):
        assert target in checker.ids


def test_neutral_colours_follow_the_theme(drawing, tmp_path):
    page, _ = read(write_report(tmp_path / "r.html", "Theme", [Picture(drawing)]))
    svg = page[page.index("<svg") : page.index("</svg>")]
    assert "prefers-color-scheme: dark" in page
    assert "var(--ink)" in svg
    assert "#1f2328" not in svg


def test_a_figure_made_on_a_dark_page_follows_the_theme_too(drawing, tmp_path):
    with matplotlib.style.context("dark_background"):
        dark = draw()
    of_the_page = lambda made: re.findall(
        r"var\(--\w+\)", write_report(tmp_path / "r.html", "Theme", [Picture(made)]).read_text("utf-8")
    )
    assert of_the_page(dark) == of_the_page(drawing)


def test_the_same_sections_give_the_same_file(tmp_path):
    first, second = (write_report(tmp_path / name, "Same", [Picture(draw())]) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_a_failure_leaves_the_old_file_and_no_other(drawing, tmp_path, monkeypatch):
    path = write_report(tmp_path / "r.html", "Old", [Text("old")])
    old = path.read_bytes()

    def fail(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(report.os, "replace", fail)
    with pytest.raises(OSError, match="full"):
        write_report(path, "New", [Text("new")])
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="full"):
        write_report(path, "New", [Picture(figure()[0].figure)])
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_ragged_table_is_an_error():
    with pytest.raises(ValueError, match="row 1 must have 2 cells; got 1"):
        Table(["a", "b"], [[1, 2], [3]])
