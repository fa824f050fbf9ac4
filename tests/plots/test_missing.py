"""What was not seen is in no curve, no bar and no band."""

import numpy as np
import pytest

from stochflow.plots import pit_histograms, reliability

RNG = np.random.default_rng(20251115)
PITS = {f"lag {lag}": RNG.uniform(size=(200, 2)) for lag in (1, 4)}
LEVELS = {lag: pits[:, 0] for lag, pits in PITS.items()}


def with_holes(by_lag):
    return {
        lag: np.append(each, np.full((300, *each.shape[1:]), np.nan), axis=0) for lag, each in by_lag.items()
    }


def drawn(ax):
    """All points of the lines, bars and bands."""
    patches = [each.get_transform().transform_path(each.get_path()).vertices for each in ax.patches]
    bands = [path.vertices for band in ax.collections for path in band.get_paths()]
    return [*bands, *patches, *[line.get_xydata() for line in ax.lines]]


@pytest.mark.parametrize(
    ("draw", "by_lag"), [(lambda x: [reliability(x)], LEVELS), (pit_histograms, PITS)], ids=["levels", "pits"]
)
def test_what_was_not_seen_changes_nothing(draw, by_lag):
    for whole, seen in zip(draw(by_lag), draw(with_holes(by_lag)), strict=True):
        for one, other in zip(drawn(whole), drawn(seen), strict=True):
            assert np.array_equal(one, other)


def test_a_channel_that_was_seen_less_widens_the_band():
    one, other = PITS["lag 1"].copy(), PITS["lag 1"][:50]
    one[50:, 1] = np.nan
    (less,), (few,) = pit_histograms({"lag 1": one}), pit_histograms({"lag 1": other})
    assert np.array_equal(less.patches[0].get_extents().bounds, few.patches[0].get_extents().bounds)


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: reliability({"lag 1": np.full(3, np.nan)}), "levels_by_lag"),
        (lambda: reliability({"lag 1": np.zeros(0)}), "levels_by_lag"),
        (lambda: pit_histograms({"lag 1": np.array([[0.5, np.nan]])}), "pits_by_lag"),
    ],
)
def test_nothing_seen_is_an_error(draw, name):
    with pytest.raises(ValueError, match=f"^`{name}` must hold numbers .* at 'lag 1'.$"):
        draw()
