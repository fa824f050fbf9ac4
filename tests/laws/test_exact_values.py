"""Laws against values known from elsewhere: SciPy, limits, one law as a special case of another."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

from stochflow.laws import (
    CIR,
    BrownianMotion,
    LinearSDE,
    MatrixOrnsteinUhlenbeck,
    OrnsteinUhlenbeck,
    Standardised,
    log_ive,
)

STANDARD_ERRORS = 4.0


def test_log_ive_agrees_with_scipy():
    order, z = np.meshgrid([-0.99, -0.5, 0.0, 0.3, 2.5, 10.0, 39.9, 40.1, 100.0], np.geomspace(1e-3, 1e5, 50))
    expected = scipy.special.ive(order, z)
    known = expected > 1e-290
    ours = log_ive(jnp.asarray(order), jnp.asarray(z))
    assert np.allclose(ours[known], np.log(expected[known]), rtol=1e-12, atol=1e-12)


def test_log_ive_is_differentiable_across_its_two_expansions():
    for order, z in ((0.7, 39.99), (0.7, 40.0), (39.0, 8.8), (39.0, 9.0), (-0.9, 0.01)):
        by_z, by_order = jax.grad(log_ive, 1), jax.grad(log_ive, 0)
        args, eps = (jnp.array(order), jnp.array(z)), 1e-5 * z
        ratio = scipy.special.ivp(order, z) / scipy.special.iv(order, z)
        assert jnp.allclose(by_z(*args), ratio - 1, rtol=1e-9)
        difference = (log_ive(args[0] + eps, args[1]) - log_ive(args[0] - eps, args[1])) / (2 * eps)
        assert jnp.allclose(by_order(*args), difference, rtol=1e-5)


@pytest.mark.parametrize(("rate", "mean", "volatility"), [(1.1, 0.8, 0.5), (0.3, 0.6, 0.9), (2.0, 3.0, 0.4)])
@pytest.mark.parametrize("gap", [1e-3, 0.5, 3.0])
def test_cir_agrees_with_scipy(rate, mean, volatility, gap):
    law, x_s = CIR([rate], [mean], [volatility]), 0.7
    c = 2 * rate / (volatility**2 * -np.expm1(-rate * gap))
    truth = scipy.stats.ncx2(
        4 * rate * mean / volatility**2, 2 * c * x_s * np.exp(-rate * gap), scale=1 / (2 * c)
    )
    noise = np.linspace(-5, 5, 21)
    call = lambda n: law.transform_and_log_prob(n[None], jnp.array([x_s]), 0.0, gap)
    x_t, log_prob = jax.jit(jax.vmap(call))(jnp.asarray(noise))
    x_t = np.asarray(x_t)[:, 0]
    assert np.all(np.diff(x_t) > 0)
    assert np.allclose(log_prob, truth.logpdf(x_t), rtol=1e-7, atol=1e-7)
    tail = np.where(noise < 0, truth.cdf(x_t), truth.sf(x_t))
    assert np.allclose(tail, scipy.stats.norm.cdf(-np.abs(noise)), rtol=1e-6)


def test_cir_from_zero_is_a_gamma_law():
    law, zero = CIR([0.8], [0.5], [1.5]), jnp.array([0.0])
    c = 2 * 0.8 / (1.5**2 * -np.expm1(-0.8 * 0.6))
    expected = scipy.stats.gamma(2 * 0.8 * 0.5 / 1.5**2, scale=1 / c).logpdf(0.3)
    assert jnp.allclose(law.log_prob(jnp.array([0.3]), zero, 0.0, 0.6), expected, rtol=1e-10)
    assert jnp.isfinite(jax.grad(lambda x: law.log_prob(jnp.array([0.3]), x, 0.0, 0.6))(zero)[0])
    assert law.log_prob(jnp.array([-0.1]), zero, 0.0, 0.6) == -jnp.inf


@pytest.mark.slow
def test_cir_quantile_gradient_by_parameters():
    def end(parameters):
        return CIR(parameters[:1], parameters[1:2], parameters[2:]).transform(
            jnp.array([0.6]), jnp.array([0.7]), 0.0, 0.8
        )[0]

    at, eps = jnp.array([0.9, 0.5, 0.8]), 1e-4
    shifts = eps * jnp.eye(3)
    differences = jax.jit(jax.vmap(lambda d: (end(at + d) - end(at - d)) / (2 * eps)))(shifts)
    assert jnp.allclose(jax.jit(jax.grad(end))(at), differences, rtol=1e-6)


def test_cir_mixture_samples_have_the_exact_moments(getkey):
    rate, mean, volatility, x_s, gap = 1.1, 0.8, 0.5, 2.0, 0.7
    law = CIR([rate], [mean], [volatility])
    x = jax.vmap(lambda k: law.sample_mixture(jnp.array([x_s]), 0.0, gap, key=k))(jr.split(getkey(), 5_000))[
        :, 0
    ]
    fade = np.exp(-rate * gap)
    expected = mean + (x_s - mean) * fade
    variance = volatility**2 / rate * (x_s * (fade - fade**2) + mean / 2 * (1 - fade) ** 2)
    assert abs(x.mean() - expected) < STANDARD_ERRORS * np.sqrt(variance / x.size)
    assert abs(x.var() - variance) < STANDARD_ERRORS * float(((x - expected) ** 2).std()) / np.sqrt(x.size)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-10), (jnp.float32, 1e-6)])
def test_ornstein_uhlenbeck_without_rate_is_brownian_motion(dtype, tolerance):
    std, x_s, x_t = jnp.array([0.7], dtype), jnp.array([1.0], dtype), jnp.array([1.4], dtype)
    motion = BrownianMotion(jnp.zeros(1, dtype), std)
    for rate in (0.0, 1e-12, -1e-12):
        law = OrnsteinUhlenbeck(jnp.array([rate], dtype), jnp.array([3.0], dtype), std)
        args = x_t, x_s, jnp.zeros((), dtype), jnp.ones((), dtype)
        assert jnp.allclose(law.log_prob(*args), motion.log_prob(*args), rtol=tolerance)
    by_rate = lambda rate: OrnsteinUhlenbeck(rate, jnp.array([3.0], dtype), std).log_prob(*args)
    assert jnp.isfinite(jax.jit(jax.grad(by_rate))(jnp.zeros(1, dtype))[0])


def test_linear_laws_contain_the_scalar_ones(getkey):
    rate, mean, std = jnp.array([0.7, 2.0]), jnp.array([0.5, -1.0]), jnp.array([0.4, 1.1])
    laws = (
        OrnsteinUhlenbeck(rate, mean, std),
        MatrixOrnsteinUhlenbeck(jnp.diag(rate), mean, std),
        LinearSDE(-jnp.diag(rate), rate * mean, jnp.diag(std)),
    )
    for gap in (1e-6, 0.3, 400.0):
        args = jr.normal(getkey(), (2,)), jr.normal(getkey(), (2,)), 1.0, 1.0 + gap
        values = jnp.stack([law.transform(*args) for law in laws])
        assert jnp.allclose(values, values[0][None], rtol=1e-9)


def test_linear_moments_agree_with_the_matrix_exponential(getkey):
    matrix, offset = 3 * np.asarray(jr.normal(getkey(), (3, 3))), np.asarray(jr.normal(getkey(), (3,)))
    scale, gap = np.asarray(jr.normal(getkey(), (3, 2))), 0.9
    step = LinearSDE(matrix, offset, scale).moments(jnp.array(gap), None)
    block = scipy.linalg.expm(gap * np.block([[matrix, scale @ scale.T], [np.zeros((3, 3)), -matrix.T]]))
    cov = block[:3, 3:] @ block[:3, :3].T
    affine = scipy.linalg.expm(gap * np.block([[matrix, offset[:, None]], [np.zeros((1, 4))]]))
    assert np.allclose(step.matrix, affine[:3, :3], rtol=1e-9)
    assert np.allclose(step.offset, affine[:3, 3], rtol=1e-9)
    assert np.allclose(step.scale_tril @ step.scale_tril.T, cov, rtol=1e-7, atol=1e-9 * np.abs(cov).max())


def test_stiff_linear_law_settles_to_its_stationary_covariance():
    rate = np.array([[900.0, 30.0], [0.0, 0.5]])
    law = MatrixOrnsteinUhlenbeck(rate, [1.0, 2.0], [1.0, 1.0])
    step = law.moments(jnp.array(200.0), None)
    expected = scipy.linalg.solve_continuous_lyapunov(rate, np.eye(2))
    assert np.allclose(step.scale_tril @ step.scale_tril.T, expected, rtol=1e-9)
    assert np.allclose(step.offset, [1.0, 2.0], rtol=1e-9)


def test_standardised_is_the_law_in_other_units(getkey):
    loc, scale, c = jnp.array([1.0, -2.0]), jnp.array([3.0, 0.5]), 2.5
    inner = OrnsteinUhlenbeck([0.7, 2.0], [0.5, -1.0], [0.4, 1.1])
    direct = OrnsteinUhlenbeck(inner.rate / c, loc + scale * inner.mean, scale * inner.std / jnp.sqrt(c))
    wrapped = Standardised(inner, loc, scale, c, horizon=7.0)
    args = jr.normal(getkey(), (2,)), jr.normal(getkey(), (2,)), 0.3, 1.9
    assert jnp.allclose(wrapped.transform(*args), direct.transform(*args), rtol=1e-12)
    assert jnp.allclose(wrapped.log_prob(*args), direct.log_prob(*args), rtol=1e-12)
    grads = jax.grad(lambda law: law.log_prob(*args))(wrapped)
    assert not grads.loc.any()
    assert not grads.scale.any()
    assert (wrapped.time_scale, wrapped.horizon) == (2.5, 7.0)


BAD = {
    "negative std": (lambda: OrnsteinUhlenbeck([1.0], [0.0], [-1.0]), "`std` must be positive; got"),
    "zero scale": (lambda: BrownianMotion([1.0], [0.0]), "`scale` must be positive; got"),
    "singular scale": (
        lambda: BrownianMotion([1.0, 1.0], [[1.0, 1.0], [1.0, 1.0]]),
        "`scale` must be an inv",
    ),
    "no dimension": (lambda: BrownianMotion([], []), "`drift` must be a vector of at least one number; got"),
    "scalar": (lambda: OrnsteinUhlenbeck(1.0, 0.0, 1.0), "`rate` must be a vector"),
    "other length": (
        lambda: OrnsteinUhlenbeck([1.0], [0.0, 1.0], [1.0]),
        "`mean` must be a vector of length 1",
    ),
    "not square": (lambda: LinearSDE([[1.0, 2.0]], [0.0], [[1.0]]), "`matrix` must be a matrix of shape"),
    "control": (lambda: LinearSDE([[1.0]], [0.0], [[1.0]], [[1.0], [2.0]]), "`control` must be a matrix"),
    "not finite": (lambda: BrownianMotion([jnp.nan], [1.0]), "`drift` must be finite; got"),
    "cir": (lambda: CIR([1.0], [-1.0], [1.0]), "`mean` must be positive; got"),
    "time scale": (
        lambda: Standardised(BrownianMotion([0.0], [1.0]), [0.0], [1.0], 0.0),
        "`time_scale` must be",
    ),
    "no covariates": (
        lambda: LinearSDE([[1.0]], [0.0], [[1.0]], [[1.0]]).log_prob(jnp.ones(1), jnp.ones(1), 0.0, 1.0),
        "`u` must be a vector of length 1; got None",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD.keys())
def test_bad_parameters_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
