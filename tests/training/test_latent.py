"""Training a latent flow: the loss against its definition, resuming, and what is refused."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow import (
    FitConfig,
    LatentConfig,
    LatentFlow,
    Trajectories,
    fit_latent,
    latent_flow,
    rhythmic_latent_flow,
)
from stochflow.data.batches import compact_series
from stochflow.inference import forecast_latent
from stochflow.latent import BernoulliEmission, PoissonEmission
from stochflow.objectives import elbo_terms
from stochflow.training.latent import _Objective, _window, units_of

QUICK = LatentConfig(
    steps=20, log_every=10, batch_size=4, consistency=0.5, consistency_batch=8, skip_starts=8, warmup_steps=2
)


def waves(series=6, rows=12, seed=0):
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.5, 1.5, (series, rows)), axis=1)
    phase = rng.uniform(0, 6, (series, 1))
    values = np.stack([np.sin(times + phase), np.cos(times + phase), 0.5 * np.sin(times + phase)], axis=2)
    values += 0.1 * rng.normal(size=values.shape)
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    values[:, :, 2] = np.where(np.isnan(values).all(axis=2), 0.0, values[:, :, 2])
    return Trajectories.from_series(list(times), list(values))


def small_model(key, **more):
    return latent_flow(3, 2, width=8, layers=1, hidden=8, **more, key=key)


@pytest.mark.parametrize("posterior", ["filter", "window", "smooth"])
def test_the_loss_with_all_steps_is_the_negative_bound_a_row(posterior, getkey):
    model, data = small_model(getkey(), posterior=posterior), waves()
    config = dataclasses.replace(QUICK, beta_skip=0.0, consistency=0.0, batch_size=100)
    series = compact_series(data, units_of(data, config))
    objective = _Objective(config, series.times.shape[1], 1.0)
    key = getkey()
    loss, terms = eqx.filter_jit(objective.loss)(model, series, jnp.array(0), key)
    path_key = jr.split(jr.split(key, 5)[0], 4)[3]
    read = eqx.filter_jit(jax.vmap(lambda s, k: elbo_terms(model, s, key=k)))
    exact = read(series, jr.split(path_key, len(data)))
    rows = exact.rows.sum()
    assert jnp.allclose(terms["reconstruction"], exact.reconstruction.sum() / rows, atol=1e-5)
    assert jnp.allclose(terms["kl"], exact.kl.sum() / rows, atol=1e-5)
    assert jnp.allclose(loss, (exact.reconstruction + exact.kl).sum() / rows, atol=1e-5)


def test_a_sample_of_the_steps_has_the_mean_of_all(getkey):
    model, data = small_model(getkey()), waves()
    all_steps = dataclasses.replace(QUICK, beta_skip=0.0, consistency=0.0, batch_size=100)
    some = dataclasses.replace(all_steps, transitions=16)
    series = compact_series(data, units_of(data, all_steps))
    kl = lambda config, key: _Objective(config, 12, 1.0).loss(model, series, jnp.array(0), key)[1]["kl"]
    keys = jr.split(getkey(), 2000)
    difference = jax.jit(jax.vmap(lambda k: kl(some, k) - kl(all_steps, k)))(keys)
    assert jnp.abs(difference.mean()) < 5 * difference.std() / np.sqrt(len(keys))
    assert difference.std() > 0


@pytest.mark.slow
def test_a_run_that_is_stopped_resumes_bit_for_bit(tmp_path, getkey):
    """Stopped while it validates: the report of that step is not lost, nor written twice."""
    model, data, key = small_model(getkey()), waves(), getkey()
    config = dataclasses.replace(QUICK, steps=30, bridge_steps=2)

    class Stop(Exception):
        pass

    seen = []

    def interrupt(flow):
        seen.append(None)
        if len(seen) == 2:
            raise Stop
        return {"loss": 1.0}

    steady = lambda flow: {"loss": 1.0}
    with pytest.raises(Stop):
        fit_latent(model, data, config=config, validation=interrupt, folder=tmp_path / "b", key=key)
    resumed = fit_latent(model, data, config=config, validation=steady, folder=tmp_path / "b", key=key)
    straight = fit_latent(model, data, config=config, validation=steady, key=key)
    same = lambda a, b: all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))
    assert same(eqx.filter(resumed.flow, eqx.is_array), eqx.filter(straight.flow, eqx.is_array))
    strip = lambda history: [{k: v for k, v in row.items() if k != "seconds"} for row in history]
    assert strip(resumed.history) == strip(straight.history)
    assert [row["step"] for row in resumed.history] == [10, 20, 30]


def test_training_lowers_the_bound_of_other_series(getkey):
    config = dataclasses.replace(QUICK, steps=200, log_every=100, ema=0.0, consistency=0.0, beta_skip=0.0)
    result = fit_latent(small_model(getkey()), waves(), config=config, validation=waves(seed=1), key=getkey())
    first, last = result.history
    assert last["loss"] < first["loss"]
    assert last["validation_loss"] < first["validation_loss"]


def test_only_what_is_trainable_is_trained(getkey):
    model, data = small_model(getkey()), waves()
    config = dataclasses.replace(QUICK, ema=0.0)
    found = fit_latent(model, data, config=config, trainable=lambda m: m.posterior, key=getkey()).flow.model
    leaves = lambda part: jax.tree.leaves(eqx.filter(part, eqx.is_array))
    same = lambda a, b: all(map(np.array_equal, leaves(a), leaves(b)))
    assert same(found.transition, model.transition)
    assert same(found.emission, model.emission)
    assert not same(found.posterior, model.posterior)


@pytest.mark.parametrize(
    "posterior",
    [
        "filter",
        pytest.param("smooth", marks=pytest.mark.slow),
        pytest.param("window", marks=pytest.mark.slow),
    ],
)
def test_series_of_every_length_are_trained_on(posterior, getkey):
    rng = np.random.default_rng(0)
    lengths = [1, 2, 3, 9]
    data = Trajectories.from_series(
        [np.arange(float(n)) for n in lengths], [rng.normal(size=(n, 3)) for n in lengths]
    )
    config = dataclasses.replace(QUICK, consistency=0.0, optimiser="adamw")
    result = fit_latent(small_model(getkey(), posterior=posterior), data, config=config, key=getkey())
    assert result.history[-1]["skipped"] == 0
    assert np.isfinite(result.history[-1]["loss"])


def test_a_long_series_is_seen_in_stretches_and_says_so(getkey):
    rng = np.random.default_rng(0)
    data = Trajectories.from_series([np.arange(600.0)], [rng.normal(size=(600, 3))])
    config = dataclasses.replace(
        QUICK, steps=2, log_every=2, batch_size=1, consistency=0.0, beta_skip=0.0, optimiser="adamw"
    )
    with pytest.warns(UserWarning, match="stretches of 512"):
        assert _window(data, config) == 512
    short = dataclasses.replace(config, window=16)
    result = fit_latent(small_model(getkey()), data, config=short, key=getkey())
    assert np.isfinite(result.history[-1]["loss"])


def test_what_cannot_be_learnt_is_refused(getkey):
    model, data = small_model(getkey()), waves()
    never = dataclasses.replace(data, mask=data.mask & (np.arange(3) != 1))
    with pytest.raises(ValueError, match="channel 1 is never observed"):
        fit_latent(model, never, config=QUICK, key=getkey())
    lonely = Trajectories.from_series([np.array([0.0])], [np.ones((1, 3))])
    with pytest.raises(ValueError, match="longest series has only 1 rows"):
        fit_latent(model, lonely, config=QUICK, key=getkey())
    with pytest.raises(ValueError, match="`model` has 3 channels but the trajectories have 2"):
        fit_latent(
            model, Trajectories.from_arrays(np.arange(4.0), np.ones((1, 4, 2))), config=QUICK, key=getkey()
        )
    with pytest.raises(ValueError, match="`skip_scheme` must be one of uniform, log, lag; got 'far'"):
        dataclasses.replace(QUICK, skip_scheme="far")
    with pytest.raises(ValueError, match="`validation` must be given"):
        fit_latent(model, data, config=dataclasses.replace(QUICK, patience=2), key=getkey())


def test_one_way_needs_no_bridge_and_reports_what_it_taught(getkey):
    config = dataclasses.replace(QUICK, one_way=3, beta_skip=0.0, steps=2, log_every=2)
    model = eqx.tree_at(lambda m: m.bridge, small_model(getkey()), None)
    result = fit_latent(model, waves(), config=config, key=getkey())
    assert np.isfinite(result.history[-1]["taught"])


def events(kind):
    """Binaries or counts at irregular times, some missing."""
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.5, 1.5, (6, 12)), axis=1)
    values = rng.integers(0, 2 if kind is BernoulliEmission else 9, (6, 12, 3)).astype(float)
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    return times, values


@pytest.mark.parametrize("emission", [BernoulliEmission, PoissonEmission])
def test_binaries_and_counts_are_trained_on_and_drawn_as_they_are(emission, getkey):
    times, values = events(emission)
    usual = small_model(getkey())
    model = LatentFlow(usual.transition, emission(2, 3, key=getkey()), usual.posterior, usual.bridge)
    data = Trajectories.from_series(list(times), list(values))
    light = dataclasses.replace(QUICK, consistency=0.0, steps=10)
    flow = fit_latent(model, data, config=light, progress=False, key=getkey()).flow
    drawn = forecast_latent(flow, times[0], values[0], times[0, -1:] + 1, samples=64, key=getkey()).values
    most = 1 if emission is BernoulliEmission else np.inf
    assert ((drawn >= 0) & (drawn <= most) & (drawn == jnp.round(drawn))).all()
    values[2, 3, 1] = 0.5
    other = Trajectories.from_series(list(times), list(values))
    with pytest.raises(ValueError, match=r"the emission takes .*; series '2' has 0\.5 in row 3, channel 1"):
        fit_latent(model, other, config=QUICK, key=getkey())


def test_each_weight_rises_at_its_own_pace(getkey):
    model, data = small_model(getkey()), waves()
    config = dataclasses.replace(QUICK, forecast=2.0, beta=3.0, beta_skip=0.5, weights_warmup=1)
    config = dataclasses.replace(config, beta_warmup=9, consistency_warmup=3, forecast_warmup=0)
    series, key = compact_series(data, units_of(data, config)), getkey()
    loss, terms = eqx.filter_jit(_Objective(config, 12, 1.0).loss)(model, series, jnp.array(0), key)
    wanted = terms["reconstruction"] + 3.0 / 10 * terms["kl"] + 0.5 / 2 * terms["skip"]
    wanted += 0.5 / 4 * (terms["one_to_two"] + terms["two_to_one"]) + 2.0 * terms["forecast"]
    assert jnp.allclose(loss, wanted, rtol=1e-5)


def test_a_value_that_was_not_observed_changes_no_gradient_of_the_whole_loss(getkey):
    """With a posterior that is computed, skips and forecasts: whatever the padding holds."""
    data = waves(series=4)
    config = dataclasses.replace(QUICK, consistency=0.0, forecast=1.0)
    model = rhythmic_latent_flow(data, config=config, styles=1, harmonics=1, key=getkey())
    series, key = compact_series(data, units_of(data, config)), getkey()
    other = series._replace(values=jnp.where(series.mask, series.values, 1e6))
    gradient = eqx.filter_jit(
        eqx.filter_grad(lambda m, s: _Objective(config, 12, 1.0).loss(m, s, jnp.array(0), key)[0])
    )
    pairs = zip(
        jax.tree.leaves(gradient(model, series)), jax.tree.leaves(gradient(model, other)), strict=True
    )
    assert all(jnp.array_equal(one, two) for one, two in pairs)


@pytest.mark.usefixtures("as_users_have_it")
def test_what_is_no_model_no_data_and_no_config_is_refused(getkey):
    model, data = small_model(getkey()), waves()
    light = dataclasses.replace(QUICK, consistency=0.0)
    for arguments, message in [
        (((model.transition, data), {}), "`model` must be a LatentFlow; got StochasticFlow"),
        (((model, [1.0]), {}), "`trajectories` must be a Trajectories; got list"),
        (((model, data), {"config": FitConfig()}), "`config` must be a LatentConfig; got FitConfig"),
        (
            ((model, data), {"config": light, "validation": lambda flow: {"mse": 1.0}}),
            "`validation` must return a dictionary with a number named 'loss'",
        ),
        (
            (
                (model, data),
                {"validation": Trajectories.from_series([np.arange(3.0)], [np.zeros((3, 2))])},
            ),
            "`validation` has 2 channels but the trajectories have 3",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            fit_latent(*arguments[0], progress=False, key=getkey(), **arguments[1])
    with pytest.raises(ValueError, match="`channels` must be at least 1; got -1"):
        latent_flow(-1, 2, key=getkey())
