"""A distilled law is that of its SDE; what cannot be distilled says why."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import stochflow
from stochflow import SDE, DistillConfig, distill, sde
from stochflow.distillation import compare
from stochflow.distillation.distill import _make_refresh, _prepare
from stochflow.distillation.pool import Simulator, Units
from stochflow.distillation.probe import choose_solver, choose_steps, find_symmetries
from stochflow.distillation.starts import ROOM, make_starts
from stochflow.laws import GeometricBrownianMotion, OrnsteinUhlenbeck, Support
from stochflow.sde import EulerMaruyama
from stochflow.training import CheckpointError

# No couplings: the laws here are normal but for one, and most of the time is the compiler's.
TINY = DistillConfig(
    width=16, depth=1, layers=0, coupling="affine", steps=600, batch_size=256, log_every=100, paths=1024, rows=16,
    dt=1 / 32, warmup_steps=20, ema=0.98,
)  # fmt: skip
SKEW = dataclasses.replace(TINY, coupling="spline", bins=4)
# Nats: what so small a budget leaves.
SHORT_BY = 0.03


@eqx.filter_jit
def log_probs(law, x_t, x_s, gap):
    return jax.vmap(lambda a, b: law.log_prob(a, b, 0.0, gap))(x_t, x_s)


def shortfall(law, truth, x_s, gap, key):
    """Mean of log p_truth − log p_law at draws of the truth: a KL divergence."""
    x_t = jax.vmap(lambda x, k: truth.sample(x, 0.0, gap, key=k))(x_s, jr.split(key, len(x_s)))
    gap = jnp.asarray(gap)
    return float((log_probs(truth, x_t, x_s, gap) - log_probs(law, x_t, x_s, gap)).mean())


OU = sde.ornstein_uhlenbeck([1.0, 0.4], [0.3, -0.5], [0.7, 0.4])
BOX = ([-1.0, -1.5], [1.5, 0.5])


@pytest.fixture(scope="module")
def distilled():
    return distill(OU, starts=BOX, horizon=1.0, config=TINY, key=jr.key(0))


def test_a_path_comes_with_its_mirror_image_over_the_same_gap(distilled):
    """Of a linear SDE the mean of the two is the mean of the law, without any noise."""
    units = Units(Support(["real", "real"]), jnp.zeros(2), jnp.ones(2))
    pool = distilled.simulator.pool(64, units, 1.0, key=jr.key(3))
    pairs = pool.draw(32, 1, key=jr.key(4))
    one, other = (jax.tree.map(lambda leaf, i=i: leaf[i::2], pairs) for i in (0, 1))
    assert (one.x_s == other.x_s).all()
    assert (one.t - one.s == other.t - other.s).all()
    rate, mean = jnp.array([1.0, 0.4]), jnp.array([0.3, -0.5])
    faded = jnp.exp(-rate[None] * (one.t - one.s)[:, None])  # the solver is a little off that
    assert jnp.allclose((one.x_t + other.x_t) / 2, mean[None] + faded * (one.x_s - mean[None]), atol=2e-3)
    assert not jnp.allclose(one.x_t, other.x_t, atol=1e-2)


TIDE = SDE(lambda t, x, u: 4 * (jnp.sin(jnp.pi * t) - x), lambda t, x, u: 0.2 + 0 * x, 1, additive=True)


def tide_mean(x_s, s, t):
    """Of `TIDE`: what is forgotten, and the level that is followed late."""
    late = lambda t: 4 * (4 * np.sin(np.pi * t) - np.pi * np.cos(np.pi * t)) / (16 + np.pi**2)
    return np.exp(-4 * (t - s)) * (x_s - late(s)) + late(t)


def test_paths_of_an_sde_that_depends_on_time_start_at_all_times():
    """So that the law holds everywhere in the box whenever it is asked, and not where paths from time zero lead."""
    config = dataclasses.replace(TINY, onward=3.0, rows=16, dt=1 / 1024, solver="additive_runge_kutta")
    simulator, units, symmetries = _prepare(TIDE, ([-3.0], [3.0]), 0.5, None, config, jr.key(0))
    assert not symmetries.autonomous
    assert simulator.latest == 2.0
    pool = simulator.pool(4096, units, 0.5, key=jr.key(1))
    drawn = [pool.draw(2048, turn, key=jr.key(turn)) for turn in range(4)]
    pairs = jax.tree.map(lambda *leaves: np.concatenate(leaves), *drawn)
    in_units = lambda x: (np.asarray(x) * np.asarray(units.scale) + np.asarray(units.loc))[:, 0]
    x_s, x_t = in_units(pairs.x_s), in_units(pairs.x_t)
    s, t = pairs.s * 0.5, pairs.t * 0.5
    assert (t > s).all()
    assert t.max() <= 2.0
    means = tide_mean(x_s, s, t)
    assert np.abs((x_t[::2] + x_t[1::2]) / 2 - (means[::2] + means[1::2]) / 2).max() < 2e-3  # mirror images
    for first in np.arange(0, 2, 0.25):
        now = (s >= first) & (s < first + 0.25)
        far = np.abs(x_s[now]) > 2  # where no path from time zero is after a while
        assert now.mean() > 0.02
        assert far.mean() > 0.1


def test_paths_of_an_autonomous_sde_start_at_time_zero(distilled):
    assert distilled.latest is None
    units = Units(Support(["real", "real"]), jnp.zeros(2), jnp.ones(2))
    assert not distilled.simulator.pool(64, units, 1.0, key=jr.key(3)).since.any()


@pytest.mark.slow
def test_a_law_that_depends_on_time_holds_in_its_box_at_all_times(getkey):
    config = dataclasses.replace(TINY, onward=3.0, steps=3000, octaves=3, paths=4096, width=32, depth=2)
    made = distill(TIDE, starts=([-3.0], [3.0]), horizon=0.5, config=config, key=getkey())
    for s, t in [(0.0, 0.1), (0.5, 0.6), (1.0, 1.25), (1.5, 2.0)]:
        for x_s in (-2.5, 0.0, 2.5):
            draw = lambda key, x_s=x_s, s=s, t=t: made.flow.sample(jnp.array([x_s]), s, t, key=key)
            x_t = jax.vmap(draw)(jr.split(getkey(), 4000))
            std = 0.2 * np.sqrt((1 - np.exp(-8 * (t - s))) / 8)
            assert abs(float(x_t.mean()) - tide_mean(x_s, s, t)) < 0.5 * std
            assert abs(float(x_t.std()) / std - 1) < 0.25
    report = compare(made, groups=4, samples=500, batch=500, gaps=[0.1, 0.5], key=getkey())
    assert [(row.start, row.gap) for row in report.gaps] == [(0, 0.1), (1.9, 0.1), (0, 0.5), (1.5, 0.5)]


def test_starts_for_training_crowd_at_the_faces_of_a_box_and_go_beyond_it():
    box = make_starts(([0.0], [1.0]), 1, Support(["real"]), key=jr.key(0))
    even = np.asarray(box.draw(2000, key=jr.key(0)))[:, 0]
    shares = (jnp.arange(2000.0)[:, None] + 0.5) / 2000
    crowded = np.asarray(box.place(shares, key=jr.key(0)))[:, 0]
    assert abs((even < 0.1).mean() - 0.1) < 0.002  # spread evenly, not drawn
    assert even.min() > 0
    assert even.max() < 1
    share = (crowded + ROOM) / (1 + 2 * ROOM)
    assert abs((share < 0.1).mean() - np.arccos(0.8) / np.pi) < 0.002


def test_coarse_paths_come_first_and_fine_ones_last():
    """With next to no noise a path of steps h ends at $(1 - h)^{1/h}$ times its start."""
    system = SDE.autonomous(lambda x: -x, lambda x: jnp.full_like(x, 1e-6), 1)
    box = make_starts(([1.0], [2.0]), 1, Support(["real"]), key=jr.key(0))
    simulator = Simulator(system, box, EulerMaruyama(), 1.0, rows=4, substeps=8, onward=0.0)
    config = dataclasses.replace(TINY, coarse=4, patience=0)
    refresh = _make_refresh(simulator, Units(Support(["real"]), jnp.zeros(1), jnp.ones(1)), config, jr.key(1))
    for step, h in [(0, 1 / 8), (300, 1 / 8), (400, 1 / 32), (500, 1 / 32)]:
        paths = refresh(step).paths
        assert jnp.allclose(paths[4] / paths[0], (1 - h) ** (1 / h), rtol=1e-4)


def test_starts_beyond_a_box_stay_within_the_support():
    box = make_starts(([0.1, 0.0], [1.0, 4.0]), 2, Support(["positive", (0.0, 4.1)]), key=jr.key(0))
    x = np.asarray(box.place(jr.uniform(jr.key(0), (2000, 2)), key=jr.key(0)))
    assert x[:, 0].min() >= 0.05
    assert x[:, 0].max() > 1.1
    assert x[:, 1].min() >= 0
    assert 4 < x[:, 1].max() <= 4.05


@pytest.mark.slow
def test_triangular_splines_learn_skew(getkey):
    config = dataclasses.replace(TINY, coupling="triangular", bins=4)
    system, exact = sde.geometric_brownian_motion([0.1], [0.5]), GeometricBrownianMotion([0.1], [0.5])
    made = distill(
        system, starts=([0.5], [2.0]), horizon=1.0, support=["positive"], config=config, key=getkey()
    )
    x_s = jr.uniform(getkey(), (2000, 1), minval=0.5, maxval=2.0)
    assert shortfall(made.flow, exact, x_s, 0.5, getkey()) < SHORT_BY


@pytest.mark.parametrize("gap", [0.1, 0.5, 1.0])
def test_an_ornstein_uhlenbeck_sde_becomes_its_exact_law(distilled, gap, getkey):
    x_s = jr.uniform(getkey(), (2000, 2), minval=jnp.array([BOX[0]]), maxval=jnp.array([BOX[1]]))
    truth = OrnsteinUhlenbeck([1.0, 0.4], [0.3, -0.5], [0.7, 0.4])
    assert shortfall(distilled.flow, truth, x_s, gap, getkey()) < SHORT_BY


def test_what_it_tells_of_itself(distilled):
    assert distilled.solver == "additive_runge_kutta"
    assert distilled.dt == 1 / 32
    assert distilled.lost == 0
    assert distilled.relative == ()
    assert [row["step"] for row in distilled.history] == list(range(100, 601, 100))
    assert distilled.flow.horizon == 1.0
    with pytest.warns(stochflow.laws.HorizonWarning):
        distilled.flow.sample(jnp.zeros(2), 0.0, 1.5, key=jr.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("interpretation", ["ito", "stratonovich"])
def test_either_calculus_gives_the_exact_law_of_geometric_brownian_motion(interpretation, getkey):
    growth = 0.1 - (0.0 if interpretation == "ito" else 0.5 * 0.3**2)
    system = SDE.autonomous(lambda x: growth * x, lambda x: 0.3 * x, 1, interpretation=interpretation)
    states = np.exp(np.random.default_rng(0).normal(size=(300, 1)) * 0.3)
    made = distill(system, starts=states, horizon=1.0, support=["positive"], config=SKEW, key=getkey())
    truth = GeometricBrownianMotion([0.1], [0.3])
    assert shortfall(made.flow, truth, jnp.asarray(np.repeat(states, 8, 0)), 1.0, getkey()) < SHORT_BY
    assert made.flow.log_prob(jnp.array([-0.1]), jnp.array([1.0]), 0.0, 1.0) == -jnp.inf


@pytest.mark.slow
def test_a_law_of_starts_correlated_noise_and_a_coordinate_that_nothing_depends_on(getkey):
    matrix = jnp.array([[0.5, 0.0], [-0.4, 0.3]])
    system = SDE.autonomous(
        lambda x: jnp.stack([0.2 - x[1], -x[1]]), lambda x: matrix, 2, noise="full", additive=True
    )
    start = lambda key: 0.5 * jr.normal(key, (2,))
    made = distill(system, starts=start, horizon=1.0, config=TINY, key=getkey())
    assert made.relative == (0,)
    x_s = jnp.array([30.0, 0.2])  # far beyond all starts in the coordinate that does not matter
    truth = stochflow.laws.LinearSDE([[0.0, -1.0], [0.0, -1.0]], [0.2, 0.0], matrix)
    assert shortfall(made.flow, truth, jnp.tile(x_s, (2000, 1)), 1 / 16, getkey()) < SHORT_BY
    assert shortfall(made.flow, truth, jnp.tile(x_s, (2000, 1)), 1.0, getkey()) < SHORT_BY


@pytest.mark.slow
def test_a_drift_that_depends_on_time_gives_a_law_that_does(getkey):
    system = SDE(lambda t, x, u: 4 * t + 0 * x, lambda t, x, u: 0.2 + 0 * x, 1, additive=True)
    config = dataclasses.replace(TINY, onward=1.0, start_fraction=0.2)
    law = distill(system, starts=([-0.5], [0.5]), horizon=1.0, config=config, key=getkey()).flow
    means = [
        float(
            jax.vmap(lambda k, s=s: law.sample(jnp.zeros(1), s, s + 0.5, key=k))(
                jr.split(getkey(), 2000)
            ).mean()
        )
        for s in (0.0, 0.5)
    ]
    assert np.allclose(means, [0.5, 1.5], atol=0.15)  # 2(t² − s²)


@pytest.mark.slow
def test_it_stops_when_the_held_out_likelihood_no_longer_improves(getkey):
    config = dataclasses.replace(TINY, learning_rate=1e-30, patience=2, steps=1000, log_every=10)
    made = distill(OU, starts=BOX, horizon=1.0, config=config, key=getkey())
    assert made.stopped_early
    assert made.history[-1]["step"] < 1000


def test_a_run_goes_on_where_it_stopped(distilled, tmp_path, monkeypatch):
    make = lambda key: distill(OU, starts=BOX, horizon=1.0, config=TINY, folder=tmp_path / "run", key=key)
    append, seen = stochflow.training.RunFolder.append_metrics, []

    def interrupt(folder, row):
        append(folder, row)
        seen.append(row)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stochflow.training.RunFolder, "append_metrics", interrupt)
        with pytest.raises(KeyboardInterrupt):
            make(jr.key(0))
    again = make(jr.key(0))
    whole, resumed = (jax.tree.leaves(eqx.filter(law.flow, eqx.is_array)) for law in (distilled, again))
    assert all((a == b).all() for a, b in zip(whole, resumed, strict=True))
    with pytest.raises(CheckpointError, match="holds another run"):
        make(jr.key(4))


def test_the_solver_is_the_best_that_fits_the_noise():
    own = SDE.autonomous(lambda x: -x, lambda x: 0.2 * x, 2)
    crossed = SDE.autonomous(lambda x: -x, lambda x: 0.2 * x[::-1], 2)
    midpoint = SDE.autonomous(lambda x: -x, lambda x: 0.2 * x[::-1], 2, interpretation="stratonovich")
    wanted = {"Milstein": own, "EulerMaruyama": crossed, "Heun": midpoint, "AdditiveRungeKutta": OU}
    states, times = jnp.ones((5, 2)), jnp.zeros(5)
    for name, system in wanted.items():
        assert type(choose_solver(system, None, find_symmetries(system, states, times))).__name__ == name


def _chain(dim=6, drift=None, diffusion=None):
    near = lambda x: x - x**3 + jnp.roll(x, 1) + jnp.roll(x, -1)
    return SDE.autonomous(drift or near, diffusion or (lambda x: 0.3 + 0.1 * x**2), dim)


RINGS = {
    "a chain": (_chain(), True),
    "that runs one way": (_chain(drift=lambda x: jnp.sin(jnp.roll(x, 1) - jnp.roll(x, -2))), True),
    "too short": (_chain(dim=4), False),
    "one place is another": (
        _chain(drift=lambda x: jnp.roll(x, 1) + jnp.roll(x, -1) + jnp.arange(6.0)),
        False,
    ),
    "noise of one place is another": (_chain(diffusion=lambda x: 1 + jnp.arange(6.0)), False),
    "all drive each": (_chain(drift=lambda x: x.mean() - x), False),
    "nobody drives another": (_chain(drift=lambda x: -x), False),
    "an open chain": (_chain(drift=lambda x: jnp.roll(x, 1).at[0].set(0.0) - x), False),
}


@pytest.mark.parametrize(("system", "is_one"), RINGS.values(), ids=RINGS.keys())
def test_a_ring_is_seen(system, is_one, getkey):
    states = jr.normal(getkey(), (16, system.dim))
    assert find_symmetries(system, states, jnp.zeros(16)).ring == is_one


STEPS_IN = {
    "a step in a coordinate": SDE.autonomous(
        lambda x: -4 * jnp.sign(x), lambda x: 0.5 + 0 * x, 1, additive=True
    ),
    "a wall beyond the starts": SDE.autonomous(
        lambda x: 1 - 20 * jnp.maximum(x - 1, 0), lambda x: 0.5 + 0 * x, 1, additive=True
    ),
}


@pytest.mark.parametrize("system", STEPS_IN.values(), ids=STEPS_IN.keys())
def test_what_has_no_slope_at_the_starts_may_matter_all_the_same(system, getkey):
    _, _, found = _prepare(system, ([-1.0], [0.5]), 1.0, None, TINY, getkey())
    assert found.relative == ()


def test_a_step_in_time_is_no_law_without_time(getkey):
    system = SDE(
        lambda t, x, u: jnp.where(t > 0.5, 5.0, 0.0) - x, lambda t, x, u: 0.5 + 0 * x, 1, additive=True
    )
    assert not _prepare(system, ([-1.0], [1.0]), 1.0, None, TINY, getkey())[2].autonomous


@pytest.mark.slow
def test_a_ring_is_distilled_by_networks_of_a_ring(getkey):
    config = dataclasses.replace(TINY, steps=100, paths=128)
    starts = lambda key: jr.normal(key, (6,))
    made = distill(_chain(), starts=starts, horizon=0.5, config=config, key=getkey())
    assert made.flow.law.ring
    assert len(set(made.flow.scale.tolist())) == 1
    plain = dataclasses.replace(config, ring=False)
    assert not distill(_chain(), starts=starts, horizon=0.5, config=plain, key=getkey()).flow.law.ring
    with pytest.raises(ValueError, match="`ring` must not be True unless each coordinate is driven"):
        distill(OU, starts=BOX, horizon=1.0, config=dataclasses.replace(TINY, ring=True), key=getkey())


def test_a_step_is_found_that_is_fine_enough(getkey):
    slow, stiff = (sde.ornstein_uhlenbeck([rate], [0.0], [1.0]) for rate in (1.0, 30.0))
    x0 = jr.normal(getkey(), (256, 1))
    coarse, fine = (choose_steps(system, EulerMaruyama(), x0, 1.0, key=jr.key(0)) for system in (slow, stiff))
    assert coarse < fine


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dt": 0.0}, "`dt` must be positive"),
        ({"dt": "a"}, "`dt` must be positive, or None; got 'a'"),
        ({"width": 0}, "`width` must be an integer of at least 1; got 0"),
        ({"coupling": "nope"}, "`coupling` must be one of affine, spline, triangular; got 'nope'"),
        ({"clock": None}, "`clock` must be one of saturating, linear; got None"),
        ({"solver": "rk4"}, "`solver` must be one of None, euler_maruyama, .* got 'rk4'"),
        ({"tails": 1}, "`tails` must be True or False; got 1"),
        ({"ring": "yes"}, "`ring` must be True, False or None; got 'yes'"),
        ({"ring": True, "tails": True}, "`ring` does not go with `tails` or triangular splines"),
        ({"paths": 7}, "`paths` must be a positive even integer; got 7"),
        ({"onward": -1.0}, "`onward` must be at least 0"),
        ({"scales": 4}, "`scales` must be an integer from 0 to 3"),
        ({"coarse": 0, "patience": None}, "`coarse` must be a positive integer"),
        ({"coarse": 2}, "`coarse` needs a `patience` of None, or 0"),
        ({"start_fraction": 2.0}, r"`start_fraction` must be in \[0, 1\]"),
        ({"steps": 10, "log_every": 3}, "`log_every` must divide `steps`"),
    ],
)
def test_a_wrong_setting_is_an_error(change, message, as_users_have_it):
    with pytest.raises(ValueError, match=message):
        DistillConfig(**change)
