"""The tables of the tutorials are those of the kept results."""

import json
from pathlib import Path

import pytest

from benchmarks.series import markdown, pooled, together

ROOT = Path(__file__).parent.parent.parent
PAGES = {"vix": "vix", "rate": "rate", "ice": "ice-core", "seals": "seals"}
KEPT = json.loads((ROOT / "results" / "series.json").read_text())
EARLY = json.loads((ROOT / "results" / "series-early.json").read_text())


@pytest.mark.parametrize("found", KEPT["results"], ids=lambda found: f"{found['series']} {found['keep']}")
def test_a_tutorial_has_the_figures_that_were_kept(found):
    page = (ROOT / "docs" / "tutorials" / f"{PAGES[found['series']]}.md").read_text()
    assert markdown(found) in page


def test_all_that_was_kept_was_made_by_one_version():
    """Rows of an older back-test, against other baselines, would stand beside newer ones unseen."""
    keys = {
        frozenset(row) - {"whole", "worse", "worse_error"}
        for found in KEPT["results"]
        for row in found["scores"]
    }
    assert len(keys) == 1
    assert {(found["series"], found["keep"]) for found in KEPT["results"]} == {
        (name, keep) for name in PAGES for keep in (1.0, 0.5)
    }


def test_the_notes_have_the_shares_of_both_windows():
    windows = {"series-early": EARLY["results"], "series": KEPT["results"]}
    assert together(windows) in (ROOT / "docs" / "notes" / "forecast.md").read_text()


def test_windows_are_pooled_by_their_forecasts():
    """Twice the same: the same share, with an error that is smaller by the root of two. Once: itself."""
    one, two = (pooled([KEPT["results"]] * number) for number in (1, 2))
    for found, same, twice in zip((f for f in KEPT["results"] if f["keep"] == 1), one, two, strict=True):
        assert found["series"] == same["series"] == twice["series"]
        for row, alone, both in zip(found["scores"], same["scores"], twice["scores"], strict=True):
            assert alone["coverage"] == pytest.approx(row["coverage"])
            assert both["coverage"] == pytest.approx(row["coverage"])
            assert both["coverage_error"] * 2**0.5 == pytest.approx(row["coverage_error"])
