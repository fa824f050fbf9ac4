"""Where a law breaks down, all that is asked of it says so."""

import numpy as np
import pytest

from .worlds import ou_frame, quick_fit


@pytest.fixture(scope="module")
def model():
    return quick_fit(ou_frame(40, series=2))


@pytest.fixture(scope="module")
def far():
    """Early in the second series, and a hole after it, so that means of the past hold it."""
    frame = ou_frame(40, series=2)
    frame.loc[70, "y"] = 1e25
    return frame


ASKED = {
    "predict": (lambda model, df: model.predict(df, horizon=1.0), "the forecast of series 's1' has draws"),
    "impute": (
        lambda model, df: model.impute(df.assign(y=df["y"].mask(df.index == 73)), samples=20),
        "what is filled in of series 's1' has draws",
    ),
    "score": (lambda model, df: model.score(df), r"\d+ of 78 forecasts have draws"),
    "log-score": (
        lambda model, df: model.score(df, metric="log"),
        r"\d+ of 78 forecasts have no log-density",
    ),
}


@pytest.mark.parametrize(("ask", "words"), ASKED.values(), ids=ASKED.keys())
def test_a_cell_without_end_is_said_and_not_hidden(ask, words, model, far):
    with pytest.raises(
        ValueError, match=f"{words}.*: the law breaks down there; leave out rows that lie far off"
    ):
        ask(model, far)


def test_a_series_that_is_whole_is_forecast_without_the_other(model, far):
    assert np.isfinite(model.predict(far.query("unique_id == 's0'"), horizon=1.0)["y"]).all()
