"""Posteriors and emissions: sizes, masks, padding, and laws that add up."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from stochflow.flows import StochasticFlow
from stochflow.latent import (
    BernoulliEmission,
    FilteringPosterior,
    GaussianEmission,
    JoinedPosterior,
    LatentFlow,
    PeriodicEmission,
    PoissonEmission,
    Series,
    SmoothingPosterior,
    StudentTEmission,
    WindowPosterior,
    latent_flow,
)
from stochflow.latent.model import number_of_parameters
from stochflow.objectives import elbo_terms

from .linear import linear_series

STANDARD_ERRORS = 5
POSTERIORS = {
    "window": lambda key, **more: WindowPosterior(3, 2, **more, key=key),
    "filter": lambda key, **more: FilteringPosterior(3, 2, hidden=8, width=8, **more, key=key),
    "smooth": lambda key, **more: SmoothingPosterior(3, 2, hidden=8, width=8, **more, key=key),
    "joined": lambda key, **more: JoinedPosterior(
        WindowPosterior(3, 1, **more, key=key), FilteringPosterior(3, 1, hidden=8, width=8, **more, key=key)
    ),
}
EMISSIONS = {
    "fixed": lambda key: GaussianEmission(2, 3, std="fixed", key=key),
    "shared": lambda key: GaussianEmission(2, 3, std="shared", key=key),
    "channel": lambda key: GaussianEmission(2, 3, std="channel", key=key),
    "state": lambda key: GaussianEmission(2, 3, std="state", key=key),
    "student": lambda key: StudentTEmission(2, 3, key=key),
    "bernoulli": lambda key: BernoulliEmission(2, 3, key=key),
    "poisson": lambda key: PoissonEmission(2, 3, key=key),
}
each_posterior = pytest.mark.parametrize("posterior", POSTERIORS.values(), ids=POSTERIORS.keys())
each_emission = pytest.mark.parametrize("emission", EMISSIONS.values(), ids=EMISSIONS.keys())


@pytest.mark.parametrize(
    ("part", "paper"),
    [
        (lambda key: WindowPosterior(50, 6, key=key), 5_832),
        (lambda key: GaussianEmission(6, 50, key=key), 2_690),
        (lambda key: FilteringPosterior(50, 6, key=key), 10_604),
        (lambda key: GaussianEmission(6, 50, std="state", key=key), 4_240),
        (lambda key: latent_flow(50, 6, clock="linear", key=key).transition, 28_820),
        (lambda key: latent_flow(50, 6, key=key).bridge, 10_452),
    ],
)
def test_parts_have_as_many_parameters_as_the_papers(part, paper, getkey):
    assert number_of_parameters(part(getkey())) == paper


@each_posterior
@pytest.mark.parametrize("mask_input", [False, True])
def test_padding_changes_no_state(posterior, mask_input, getkey):
    make = posterior(getkey(), mask_input=mask_input)
    key = getkey()
    plain, padded = (linear_series(6, padding=n, key=key) for n in (0, 4))
    read = eqx.filter_jit(make.marginals)
    for a, b in zip(read(plain), read(padded), strict=True):
        assert jnp.allclose(a, b[:6], atol=1e-12)


@pytest.mark.parametrize(
    ("posterior", "emission"),
    [("window", "channel"), ("smooth", "channel")] + [("filter", emission) for emission in EMISSIONS],
)
def test_a_value_that_was_not_observed_changes_no_gradient(posterior, emission, getkey):
    model = LatentFlow(
        StochasticFlow(2, width=8, key=getkey()),
        EMISSIONS[emission](getkey()),
        POSTERIORS[posterior](getkey(), mask_input=True),
    )
    series, key = linear_series(6, padding=1, key=getkey()), getkey()
    series = series._replace(values=jnp.round(jnp.abs(series.values)).clip(0, 1))
    other = series._replace(values=jnp.where(series.mask, series.values, 1e6))
    gradient = eqx.filter_jit(
        eqx.filter_grad(lambda model, series: elbo_terms(model, series, key=key).nelbo())
    )
    one, two = jax.tree.leaves(gradient(model, series)), jax.tree.leaves(gradient(model, other))
    assert all(jnp.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert max(float(jnp.abs(a).max()) for a in one if a.size) > 0
    assert all(bool(jnp.isfinite(a).all()) for a in one)


@each_posterior
def test_paths_have_the_marginals_that_are_said(posterior, getkey):
    make, series = posterior(getkey()), linear_series(5, key=getkey())
    mean, std = make.marginals(series)
    number = 8192
    x = jax.jit(jax.vmap(lambda k: make.sample_and_log_prob(series, key=k).x))(jr.split(getkey(), number))
    assert jnp.abs((x.mean(axis=0) - mean) / (std / np.sqrt(number))).max() < STANDARD_ERRORS
    assert jnp.abs(x.var(axis=0) / std**2 - 1).max() < STANDARD_ERRORS * np.sqrt(2 / number)


def test_a_smoothed_path_is_markov_and_has_the_density_that_is_said(getkey):
    """The whole path is an affine map of its noise: its density by the Jacobian of that map."""
    make, series, key = POSTERIORS["smooth"](getkey()), linear_series(4, key=getkey()), getkey()
    path = make.sample_and_log_prob(series, key=key)
    mean, _ = make.marginals(series)

    def mapped(noise):
        # Replays the recursion with given noise, through its effect on the sample: x is affine in the noise.
        matrices, shifts, stds = make._kernels(series)
        x, rows = jnp.zeros(2), []
        for matrix, shift, std, e in zip(matrices, shifts, stds, noise, strict=True):
            x = matrix @ x + shift + std * e
            rows.append(x)
        return jnp.stack(rows).ravel()

    noise = jnp.zeros((4, 2))
    assert jnp.allclose(mapped(noise), mean.ravel(), atol=1e-12)
    jacobian = jax.jacfwd(mapped)(noise).reshape(8, 8)
    e = jnp.linalg.solve(jacobian, path.x.ravel() - mean.ravel())
    log_prob = -0.5 * (e @ e + 8 * jnp.log(2 * jnp.pi)) - jnp.linalg.slogdet(jacobian)[1]
    assert jnp.allclose(path.log_prob.sum(), log_prob, atol=1e-9)


def test_a_filter_does_not_see_the_future_and_a_smoother_does(getkey):
    series = linear_series(6, key=getkey())
    later = series._replace(values=series.values.at[4:].add(1.0), mask=series.mask.at[4:].set(True))
    for name, sees in [("filter", False), ("window", False), ("smooth", True)]:
        make = POSTERIORS[name](getkey())
        read = eqx.filter_jit(lambda series, make=make: make.marginals(series).mean[:4])
        changed = jnp.abs(read(series) - read(later)).max() > 1e-6
        assert bool(changed) == sees, name


@each_emission
def test_emissions_agree_with_their_samples_and_with_all_or_some_channels(emission, getkey):
    make, x = emission(getkey()), jr.normal(getkey(), (2,))
    number = 16_384
    values = jax.jit(jax.vmap(lambda k: make.sample(x, key=k)))(jr.split(getkey(), number))
    error = (values.mean(axis=0) - make.mean(x)) / (values.std(axis=0) / np.sqrt(number))
    assert jnp.abs(error).max() < STANDARD_ERRORS
    every = make.log_prob(values[0], jnp.ones(3, bool), x)
    apart = sum(make.log_prob(values[0], jnp.arange(3) == i, x) for i in range(3))
    assert jnp.allclose(every, apart, atol=1e-10)
    assert make.log_prob(values[0], jnp.zeros(3, bool), x) == 0


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_probabilities_of_counts_add_up_to_one(name, getkey):
    make, x = EMISSIONS[name](getkey()), jr.normal(getkey(), (2,))
    support = jnp.arange(2.0) if name == "bernoulli" else jnp.arange(60.0)
    first = jnp.arange(3) == 0
    log_probs = jax.vmap(lambda v: make.log_prob(jnp.full(3, v), first, x))(support)
    assert jnp.allclose(jnp.exp(log_probs).sum(), 1, atol=1e-10)


@pytest.mark.parametrize("name", ["channel", "state", "student"])
def test_densities_integrate_to_one(name, getkey):
    make, x = EMISSIONS[name](getkey()), jr.normal(getkey(), (2,))
    grid = jnp.sinh(jnp.linspace(-12, 12, 40_001))
    log_probs = jax.vmap(lambda v: make.log_prob(jnp.full(3, v), jnp.arange(3) == 1, x))(grid)
    total = jnp.sum(0.5 * (jnp.exp(log_probs)[1:] + jnp.exp(log_probs)[:-1]) * jnp.diff(grid))
    assert jnp.allclose(total, 1, atol=1e-5)


def test_wrong_parts_are_refused(getkey):
    with pytest.raises(ValueError, match="`std` must be one of fixed, shared, channel, state; got 'learnt'"):
        GaussianEmission(2, 3, std="learnt", key=getkey())
    with pytest.raises(ValueError, match="`posterior` must be one of filter, smooth, window; got 'gru'"):
        latent_flow(3, 2, posterior="gru", key=getkey())
    with pytest.raises(ValueError, match="`emission` has states of size 4 where `transition` has 2"):
        LatentFlow(
            StochasticFlow(2, key=getkey()),
            GaussianEmission(4, 3, key=getkey()),
            POSTERIORS["filter"](getkey()),
        )
    with pytest.raises(ValueError, match="`posterior` reads 3 channels where `emission` has 4"):
        LatentFlow(
            StochasticFlow(2, key=getkey()),
            GaussianEmission(2, 4, key=getkey()),
            FilteringPosterior(3, 2, key=getkey()),
        )
    with pytest.raises(ValueError, match="`window` must be at least 1"):
        WindowPosterior(3, 2, window=0, key=getkey())


def test_the_gap_before_the_first_row_is_zero():
    series = Series(
        jnp.array([5.0, 6.0, 6.0]), jnp.zeros((3, 1)), jnp.ones((3, 1), bool), jnp.array([True, True, False])
    )
    assert jnp.array_equal(series.gaps, jnp.array([0.0, 1.0, 0.0]))


def test_only_independent_posteriors_are_joined(getkey):
    with pytest.raises(ValueError, match="`independent` states"):
        JoinedPosterior(POSTERIORS["smooth"](getkey()))
    with pytest.raises(ValueError, match="one posterior at least"):
        JoinedPosterior()


def test_only_posteriors_of_the_same_channels_are_joined(getkey):
    parts = WindowPosterior(3, 1, mask_input=True, key=getkey()), FilteringPosterior(5, 1, key=getkey())
    with pytest.raises(ValueError, match="`parts` must read the same channels; got 3, 5"):
        JoinedPosterior(*parts)
    assert JoinedPosterior(parts[0]).channels == 3


def test_the_last_state_of_a_smoother_is_known_with_its_correlations(getkey):
    """A forecast starts from the law that the last states of whole paths have."""
    posterior, series = (
        SmoothingPosterior(3, 2, mask_input=True, key=getkey()),
        linear_series(6, key=getkey()),
    )
    last = eqx.filter_jit(posterior.last)(series)
    draw = lambda k: posterior.sample_and_log_prob(series, key=k).x[-1]
    drawn = np.asarray(jax.jit(jax.vmap(draw))(jr.split(getkey(), 20_000)))
    noise = np.linalg.solve(np.asarray(last.scale_tril), (drawn - np.asarray(last.mean)).T)
    assert np.abs(noise.mean(axis=1)).max() < STANDARD_ERRORS / np.sqrt(20_000)
    assert np.abs(np.cov(noise) - np.eye(2)).max() < STANDARD_ERRORS * np.sqrt(2 / 20_000)


@pytest.mark.parametrize(("phases", "harmonics", "unseen"), [(1, 3, 2), (2, 2, 0)])
def test_a_periodic_emission_sees_what_it_should(phases, harmonics, unseen, getkey):
    """What is seen as it is, then all cosines, then all sines, harmonic by harmonic; nothing of what is not seen."""
    seen = 2
    emission = PeriodicEmission(
        GaussianEmission(seen + 2 * phases * harmonics, 3, key=getkey()),
        phases=phases,
        harmonics=harmonics,
        unseen=unseen,
    )
    x = 3 * jr.normal(getkey(), (emission.dim,))
    angles = np.outer(np.arange(1, harmonics + 1), x[-phases:]).ravel()
    wanted = np.concatenate([x[unseen : unseen + seen], np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(emission.features(x), wanted, atol=1e-14)
    other = x.at[:unseen].add(1.0).at[-phases:].add(2 * np.pi)
    np.testing.assert_allclose(emission.mean(other), emission.mean(x), atol=1e-12)
