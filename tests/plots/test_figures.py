"""Every figure draws, on its own axes or on those it is given, and leaves no trace in global state."""

import importlib
import inspect
import math
import re
import sys

import jax.numpy as jnp
import matplotlib
import matplotlib.style
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb, to_rgba_array
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.text import Text
from mpl_toolkits.mplot3d.art3d import Line3DCollection

from stochflow import plots
from stochflow.distillation import Comparison, GapComparison
from stochflow.metrics import ConsistencyBound, ConsistencyError, quantiles_of_draws
from stochflow.plots import (
    PALETTE,
    animate_forecast,
    consistency_against_gap,
    density_slices,
    drift_field,
    error_against_cost,
    fan_after,
    fan_chart,
    figure,
    figure_of,
    flow_against_solver,
    likelihood_per_lag,
    phase_portrait,
    pit_histograms,
    reliability,
    training_curve,
    trajectories_side_by_side,
)
from stochflow.plots.style import COLOURS, DARK, FAINT, INK, MUTED

RNG = np.random.default_rng(20251115)
TIMES = np.linspace(0, 1, 11)
PATHS = RNG.normal(size=(70, 11, 3)).cumsum(axis=1)
GAPS = jnp.linspace(0.1, 1, 5)
ERRORS = {
    "two steps": ConsistencyError(GAPS, GAPS**2, 0.1 * GAPS, 2),
    "bound": ConsistencyBound(GAPS, GAPS**2, 0.1 * GAPS),
}
AT_A_GAP = GapComparison(
    1.0, 0.02, 0.01, 0.01, 0.01, 1e-4, 5e-5, -1e-5, 5e-5, (0.01, 0.02), (0.5, 0.2), 24, 9e-5, 4e-7, 2e-6
)  # fmt: skip
COMPARISON = Comparison((AT_A_GAP, AT_A_GAP), 60.0, 16, 1000, 0.01, 10_000, 0.0, 0.0)
LEVELS = {f"lag {lag}": RNG.uniform(size=200) for lag in (1, 4, 10)}
PITS = {f"lag {lag}": RNG.uniform(size=(200, 2)) for lag in (1, 4, 10, 20, 40)}
HISTORY = {
    "step": np.arange(50),
    "loss": RNG.normal(size=50),
    "gap": [math.nan] + [1.0] * 49,
    "bad": [math.inf] * 50,
}
LINE = np.linspace(-1, 1, 9)[:, None], -np.linspace(-1, 1, 9)[:, None], np.full((9, 1, 1), 0.3)
GRID = np.stack(np.meshgrid(np.linspace(-1, 1, 5), np.linspace(0, 2, 4), indexing="ij"), axis=-1)
PLANE = GRID, GRID[..., ::-1], np.broadcast_to(np.diag([0.2, 0.1]), (5, 4, 2, 2))
CLOUDS = RNG.normal(size=(2, 150, 3))

SINGLE = {
    "reliability": lambda ax: reliability(LEVELS, ax=ax),
    "likelihood": lambda ax: likelihood_per_lag(TIMES, TIMES, 1 + TIMES, flow_se=0.1 * TIMES, ax=ax),
    "likelihood alone": lambda ax: likelihood_per_lag(TIMES, TIMES, ax=ax),
    "consistency": lambda ax: consistency_against_gap(ERRORS, ax=ax),
    "phase portrait": lambda ax: phase_portrait(PATHS[0, :, :2], PATHS[:, :, :2], ax=ax),
    "cost": lambda ax: error_against_cost([1.0, 10.0], [3.0, 2.5], ["one step", "steps of 10"], ax=ax),
}
MANY = {
    "trajectories": (2, "3d", lambda axes: trajectories_side_by_side(PATHS, PATHS, times=TIMES, axes=axes)),
    "trajectories and points": (
        3,
        "3d",
        lambda axes: trajectories_side_by_side(PATHS, PATHS, PATHS, axes=axes),
    ),
    "slices": (4, None, lambda axes: density_slices(CLOUDS, 2 * CLOUDS, times=(0.5, 1), axes=axes)),
    "fan": (3, None, lambda axes: fan_chart(TIMES, PATHS, PATHS[0], axes=axes)),
    "fan without truth": (3, None, lambda axes: fan_chart(TIMES, PATHS, names="xyz", axes=axes)),
    "fan after": (3, None, lambda axes: fan_after(TIMES, PATHS[0], 1 + TIMES, PATHS, axes=axes)),
    "pit": (5, None, lambda axes: pit_histograms(PITS, axes=axes)),
    "training": (3, None, lambda axes: training_curve(HISTORY, axes=axes)),
    "field on a line": (2, None, lambda axes: drift_field(*LINE, truth=LINE[1:], axes=axes)),
    "field in the plane": (2, None, lambda axes: drift_field(*PLANE, names="xy", axes=axes)),
    "field beside the truth": (2, None, lambda axes: drift_field(*PLANE, truth=PLANE[1:], axes=axes)),
    "distillation": (2, None, lambda axes: flow_against_solver(COMPARISON, axes=axes)),
}
# Each of them on new axes, and how many of which kind it asks for.
EVERY = {name: (1, None, draw) for name, draw in SINGLE.items()} | MANY


def pixels(ax: Axes) -> np.ndarray:
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


@pytest.mark.parametrize("draw", SINGLE.values(), ids=SINGLE.keys())
def test_a_single_panel_draws_on_new_and_on_given_axes(draw):
    assert pixels(draw(None)).std() > 0
    (ax,) = figure()
    assert draw(ax) is ax
    assert ax.get_xlabel()
    assert ax.get_ylabel()


@pytest.mark.parametrize(("count", "projection", "draw"), MANY.values(), ids=MANY.keys())
def test_panels_draw_on_new_and_on_given_axes(count, projection, draw):
    axes = draw(None)
    assert len(axes) == count
    assert pixels(axes[0]).std() > 0
    given = figure(1, count, projection=projection)
    assert draw(given) == given
    with pytest.raises(ValueError, match=f"`axes` must hold {count} axes; got 1"):
        draw(given[:1])


def test_both_sides_have_the_same_limits_and_view():
    left, *others = trajectories_side_by_side(PATHS, 3 * PATHS, 2 * PATHS)
    for right in others:
        for get in ("get_xlim", "get_ylim", "get_zlim"):
            assert getattr(left, get)() == getattr(right, get)()
        assert (left.elev, left.azim) == (right.elev, right.azim)


def test_at_most_sixty_four_paths_are_shown():
    left, _ = trajectories_side_by_side(PATHS, PATHS)
    assert len(left.collections[0].get_array()) == 64 * 10


def test_no_line_of_training_crosses_a_mark():
    (ax,) = training_curve({"step": [1, 2, 3, 4, 5], "loss": [3.0, 2.0, 9.0, 8.0, 7.0]}, marks={"second": 2})
    drawn = [
        line.get_xdata() for line in ax.lines if len(line.get_xdata()) > 1 and line.get_linestyle() == "-"
    ]
    assert {tuple(x) for x in drawn} == {(1, 2), (3, 4, 5)}
    assert [text.get_text() for text in ax.texts] == ["second"]


def test_outlines_of_two_thin_wings_are_as_thin_as_they_are():
    wings = np.concatenate([RNG.normal(at, 0.1, 500) for at in (-10, 10)])
    cloud = np.stack([wings, RNG.normal(0, 1, 1000)], axis=1)
    (top, _) = density_slices(cloud[None], cloud[None], times=[1.0], dims=(0, 1), names="xy")
    (outline,) = [found for found in top.collections if isinstance(found, QuadContourSet)]
    widths = [np.ptp(part[:, 0]) for part in outline.get_paths()[0].to_polygons()]
    assert widths
    assert max(widths) < 0.8


def test_points_have_no_lines_between_them():
    paths, points = trajectories_side_by_side(PATHS, PATHS, PATHS)[1:]
    assert any(isinstance(found, Line3DCollection) for found in paths.collections)
    assert not any(isinstance(found, Line3DCollection) for found in points.collections)
    assert len(points.collections[0].get_offsets()) == 64 * PATHS.shape[1]


def test_settings_are_left_as_they_were_and_pyplot_is_not_asked():
    before = dict(matplotlib.rcParams)
    reliability(LEVELS)
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize("own", [False, True], ids=["by the settings", "on axes of one's own"])
def test_on_a_dark_page_nothing_neutral_is_dark(own):
    with matplotlib.style.context("dark_background"):
        ax = reliability(LEVELS, ax=Figure().subplots() if own else None)
    assert luminance(to_hex(ax.figure.get_facecolor())) < 0.02
    texts = [ax.title, ax.xaxis.label, *ax.get_xticklabels(), *ax.get_legend().get_texts()]
    written = {to_hex(artist.get_color()) for artist in [*texts, *ax.lines]}
    assert not written & {INK, MUTED}
    assert min(map(luminance, written)) > 0.1
    assert {to_hex(line.get_color()) for line in reliability(LEVELS).lines} & {INK, MUTED}


def colours(page: Figure) -> list[set[str]]:
    """Of each artist of a page, once it is drawn, all that it shows."""
    FigureCanvasAgg(page).draw()
    shown = lambda artist, name: to_rgba_array(getattr(artist, f"get_{name}", lambda: "none")())
    return [
        {to_hex(colour) for name in COLOURS for colour in shown(artist, name) if colour[3]}
        for artist in page.findobj()
    ]


@pytest.mark.parametrize(("count", "projection", "draw"), EVERY.values(), ids=EVERY.keys())
def test_a_dark_page_has_its_own_neutral_colours_and_the_same_others(count, projection, draw):
    light = colours(figure_of(draw(None)))
    with matplotlib.style.context("dark_background"):
        dark = colours(figure_of(draw(None)))
    assert dark == [{DARK.get(colour, colour) for colour in each} for each in light]


@pytest.mark.parametrize(("count", "projection", "draw"), EVERY.values(), ids=EVERY.keys())
def test_on_a_dark_page_of_ones_own_everything_can_be_read(count, projection, draw):
    with matplotlib.style.context("dark_background"):
        page = Figure(layout="constrained")
        given = page.subplots(1, count, squeeze=False, subplot_kw={"projection": projection})[0]
        draw(list(given) if count > 1 else given[0])
    assert not set().union(*colours(page)) & {INK, MUTED, FAINT}
    written = {to_hex(text.get_color()) for text in page.findobj(Text) if text.get_text()}
    assert min(map(luminance, written)) > 0.1
    grids = [axis.gridlines for ax in given if projection for axis in (ax.xaxis, ax.yaxis, ax.zaxis)]
    assert all(to_hex(colour) == DARK[FAINT] for grid in grids for colour in grid.get_color())


def test_paths_keep_their_colours_on_a_dark_page_that_was_light():
    page = Figure(facecolor="white")
    given = list(page.subplots(1, 2, subplot_kw={"projection": "3d"}))
    with matplotlib.style.context("dark_background"):
        trajectories_side_by_side(PATHS, PATHS, axes=given)
    pixels(given[0])
    assert [len(np.unique(ax.collections[0].get_edgecolor(), axis=0)) for ax in given] == [10, 10]


def test_lines_of_the_caller_that_are_coloured_by_values_stay_so():
    ax = Figure(facecolor="white").subplots()
    with matplotlib.style.context("dark_background"):
        own = LineCollection([[(0, 0), (1, 0)], [(0, 1), (1, 1)]], array=[0.0, 1.0])
        ax.add_collection(own)
        reliability(LEVELS, ax=ax)
    pixels(ax)
    assert len(np.unique(own.get_edgecolor(), axis=0)) == 2


def test_every_public_function_that_draws_is_in_the_catalogue():
    public = {name for name, found in vars(plots).items() if inspect.isfunction(found)}
    drawn = {name for _, _, draw in EVERY.values() for name in draw.__code__.co_names}
    assert public - drawn == {"animate_forecast", "figure", "figure_of", "save", "styled", "write_report"}


@pytest.mark.parametrize("own", [False, True], ids=["on new axes", "on axes of one's own"])
def test_the_tallest_bars_of_all_panels_fit(own):
    pits = {"sharp": np.full((50, 1), 0.51), "flat": np.linspace(0, 1, 50)[:, None]}
    axes = pit_histograms(pits, axes=figure(1, 2) if own else None)
    (limits,) = {ax.get_ylim() for ax in axes}
    assert limits[0] == 0
    assert limits[1] > 20  # all in one of twenty bins


PAST, LATER = np.arange(4.0), np.array([5.0, 6.0])


def bands(ax: Axes) -> list[np.ndarray]:
    """The corners of each band of a fan."""
    return [path.vertices for band in ax.collections for path in band.get_paths()]


def test_a_fan_at_a_single_time_is_seen():
    for ax, values in zip(fan_chart(np.array([2.0]), PATHS[:, :1], PATHS[0, :1]), PATHS[:, 0].T):
        inner = bands(ax)[-1]
        # The very numbers that a forecast's quantiles are.
        assert np.array_equal(inner[:, 1], quantiles_of_draws(values, [0.25, 0.75], axis=0))
        assert (inner[:, 0] == 2.0).all()
        assert all(band.get_linewidth()[0] > 5 for band in ax.collections)
        assert [line.get_marker() for line in ax.lines] == ["o", "o"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_fan_opens_from_the_last_row(number):
    draws = PATHS[:, :number]
    for i, ax in enumerate(fan_after(PAST, PATHS[0, :4], LATER[:number], draws, paths=draws[:2])):
        for corners in bands(ax):
            assert (corners[:, 0].min(), corners[:, 0].max()) == (PAST[-1], LATER[number - 1])
            assert np.all(corners[corners[:, 0] == PAST[-1], 1] == PATHS[0, 3, i])
        for line in ax.lines[1:4]:  # the median and two paths
            assert line.get_xydata()[0].tolist() == [PAST[-1], PATHS[0, 3, i]]


def first_time(ax: Axes) -> float:
    return min(corners[:, 0].min() for corners in bands(ax))


def test_a_fan_opens_from_the_last_row_that_is_complete_and_lies_before_it():
    seen = PATHS[0, :4, :2].copy()
    seen[3, 1] = np.nan
    fan = lambda values, times, **more: fan_after(PAST, values, times, PATHS[:, :2, :2], **more)[0]
    assert first_time(fan(seen, LATER)) == 2.0
    assert first_time(fan(seen, LATER, join=False)) == 5.0
    assert first_time(fan(np.full_like(seen, np.nan), LATER)) == 5.0
    assert first_time(fan(PATHS[0, :4, :2], np.array([1.5, 2.5]))) == 1.0
    assert first_time(fan(PATHS[0, :4, :2], np.array([1.0, 2.5]))) == 1.0


# What is wrong, and all that is said about it.
MISTAKES = {
    "no lag": (lambda: pit_histograms({}), "`pits_by_lag` must hold at least one lag; got none."),
    "no lag of levels": (lambda: reliability({}), "`levels_by_lag` must hold at least one lag; got none."),
    "pits of one dimension": (
        lambda: pit_histograms({"lag 1": np.ones(9)}),
        "`pits_by_lag` must hold arrays of shape (n, dim); got (9,) at 'lag 1'.",
    ),
    "no names": (
        lambda: drift_field(*PLANE, names=[]),
        "`names` must hold one name a dimension, here 2; got 0.",
    ),
    "too few names of bars": (
        lambda: pit_histograms(PITS, names=["x"]),
        "`names` must hold one name a dimension, here 2; got 1.",
    ),
    "samples of one dimension": (
        lambda: fan_chart(TIMES, PATHS[..., 0]),
        "`samples` must have shape (n, times, dim), here with 11 times; got (70, 11): a single dimension has an axis "
        "too, as in `samples[..., None]`.",
    ),
    "paths at other times": (
        lambda: fan_after(TIMES, PATHS[0], 1 + TIMES, PATHS, paths=PATHS[:, 1:]),
        "`paths` must have shape (n, times, dim), here with 11 times; got (70, 10, 3): a single dimension has an axis "
        "too, as in `paths[..., None]`.",
    ),
    "truth of one dimension": (
        lambda: fan_chart(TIMES, PATHS, PATHS[0, :, 0]),
        "`truth` must have shape (times, dim), here (11, 3); got (11,).",
    ),
    "a past of one dimension": (
        lambda: fan_after(TIMES, PATHS[0, :, 0], 1 + TIMES, PATHS),
        "`past_values` must have shape (times, dim), here (11, 3); got (11,).",
    ),
    "too few names of a fan": (
        lambda: fan_chart(TIMES, PATHS, names=["x"]),
        "`names` must hold one name a dimension, here 3; got 1.",
    ),
}


@pytest.mark.parametrize(("draw", "said"), MISTAKES.values(), ids=MISTAKES.keys())
@pytest.mark.usefixtures("as_users_have_it")
def test_one_sentence_says_what_was_wrong(draw, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        draw()


def test_history_without_steps_is_an_error():
    with pytest.raises(ValueError, match="`history` must hold the series 'step'; got loss"):
        training_curve({"loss": [1.0, 2.0]})


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("page", ["#ffffff", "#181c21"])
@pytest.mark.parametrize("colour", PALETTE)
def test_data_colours_can_be_read_on_light_and_dark_pages(colour, page):
    low, high = sorted([luminance(colour), luminance(page)])
    assert (high + 0.05) / (low + 0.05) >= 3


def test_without_matplotlib_one_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("stochflow.plots")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"run `pip install stochflow\[plots\]`"):
        importlib.import_module("stochflow.plots")


def a_walk(samples=20, times=30):
    angle = np.linspace(0, 6, times)
    truth = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return truth, truth + 0.1 * np.random.default_rng(0).normal(size=(samples, times, 2))


def test_a_phase_portrait_holds_the_truth_and_all_samples():
    truth, samples = a_walk()
    ax = phase_portrait(truth, samples)
    assert len(ax.collections[0].get_offsets()) == 20 * 30
    (low, high), (down, up) = ax.get_xlim(), ax.get_ylim()
    assert low < truth[:, 0].min()
    assert truth[:, 0].max() < high
    assert down < truth[:, 1].min()
    assert truth[:, 1].max() < up


def test_an_animation_has_a_picture_a_time_and_appears_whole(tmp_path):
    from PIL import Image

    truth, samples = a_walk(times=5)
    path = animate_forecast(tmp_path / "walk.gif", truth, samples, every=0.4)
    with Image.open(path) as gif:
        assert gif.n_frames == 5
    assert [file.name for file in tmp_path.iterdir()] == ["walk.gif"]


def test_an_animation_is_dark_where_the_settings_are(tmp_path):
    from PIL import Image

    truth, samples = a_walk(times=3)
    with matplotlib.style.context("dark_background"):
        animate_forecast(tmp_path / "walk.gif", truth, samples, every=0.4)
    with Image.open(tmp_path / "walk.gif") as gif:
        for i in range(gif.n_frames):
            gif.seek(i)
            shades = np.asarray(gif.convert("L"))
            assert np.median(shades) < 40
            assert shades.max() > 200


def test_error_against_cost_names_every_point():
    ax = error_against_cost([1.0, 10.0], [3.0, 2.5], ["one step", "steps of 10"])
    assert [text.get_text() for text in ax.texts] == ["one step", "steps of 10"]
    assert ax.get_xscale() == "log"


def test_a_field_is_drawn_where_it_is_and_other_grids_are_refused():
    left, right = drift_field(*PLANE, names="xy")
    assert [left.get_xlabel(), left.get_ylabel(), right.get_title()] == ["x", "y", "diffusion"]
    arrows = left.collections[-1]
    np.testing.assert_allclose(np.stack([arrows.U, arrows.V], axis=-1), PLANE[1].reshape(-1, 2))
    with pytest.raises(ValueError, match=r"`points` and `drift` must have shape \(n, 1\) or \(n, m, 2\)"):
        drift_field(PLANE[0][0], PLANE[1][0], PLANE[2][0])


@pytest.mark.parametrize("times", [1, 10], ids=["beside the law", "beside ten times as much"])
def test_arrows_lie_within_the_axes_with_their_heads(times):
    outwards = np.stack([GRID[..., 0], GRID[..., 1] - 1], axis=-1)
    left, right = drift_field(GRID, outwards, PLANE[2], truth=(times * outwards, PLANE[2]))
    assert (left.get_xlim(), left.get_ylim()) == (right.get_xlim(), right.get_ylim())
    pixels(left)
    box = left.get_window_extent()
    for arrows in (found for found in left.collections if isinstance(found, Quiver)):
        # A polygon an arrow, in dots from where it stands.
        feet = left.transData.transform(arrows.get_offsets())
        corners = [
            foot + arrows.get_transform().transform(path.vertices)
            for foot, path in zip(feet, arrows.get_paths(), strict=True)
        ]
        low, high = np.min(np.concatenate(corners), axis=0), np.max(np.concatenate(corners), axis=0)
        assert np.all(low > box.min)
        assert np.all(high < box.max)
