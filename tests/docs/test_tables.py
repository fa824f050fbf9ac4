"""The tables of the tutorials are those of the kept results."""

import json
from pathlib import Path

import pytest

from benchmarks.series import markdown

ROOT = Path(__file__).parent.parent.parent
PAGES = {"vix": "vix", "rate": "rate", "ice": "ice-core", "seals": "seals"}
KEPT = json.loads((ROOT / "results" / "series.json").read_text())


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
