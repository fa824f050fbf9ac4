"""The exact filter and smoother, against the joint normal law of everything."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from stochflow.inference import affine_step, kalman

from .linear import linear_model, linear_series


def joint(model, series):
    """Mean and covariance of all states, and the matrix and offset of what was observed of them."""
    rows = len(series.times)
    mean, covariance = [np.asarray(model.mean)], np.zeros((2 * rows, 2 * rows))
    covariance[:2, :2] = model.covariance
    for i in range(1, rows):
        matrix, shift, noise = map(
            np.asarray, affine_step(model.transition, series.times[i - 1], series.times[i])
        )
        mean.append(matrix @ mean[-1] + shift)
        now, past = slice(2 * i, 2 * i + 2), slice(0, 2 * i)
        before = slice(2 * i - 2, 2 * i)
        covariance[now, past] = matrix @ covariance[before, past]
        covariance[past, now] = covariance[now, past].T
        covariance[now, now] = matrix @ covariance[before, before] @ matrix.T + noise
    return np.concatenate(mean), covariance


def condition(mean, covariance, model, series, upto):
    """States given the rows before `upto`, and the log-density of those rows."""
    mask = np.asarray(series.mask)[:upto]
    picks, offsets, values = [], [], []
    for i, c in zip(*np.nonzero(mask), strict=True):
        row = np.zeros(len(mean))
        row[2 * i : 2 * i + 2] = np.asarray(model.matrix)[c]
        picks.append(row)
        offsets.append(float(model.offset[c]))
        values.append(float(series.values[i, c]))
    matrix = np.array(picks)
    spread = matrix @ covariance @ matrix.T + float(model.std[0]) ** 2 * np.eye(len(matrix))
    surprise = np.array(values) - matrix @ mean - np.array(offsets)
    gain = np.linalg.solve(spread, matrix @ covariance).T
    log_prob = -0.5 * (
        surprise @ np.linalg.solve(spread, surprise)
        + np.linalg.slogdet(spread)[1]
        + len(values) * np.log(2 * np.pi)
    )
    return mean + gain @ surprise, covariance - gain @ matrix @ covariance, log_prob


def test_filter_smoother_and_likelihood_are_those_of_the_joint_law(getkey):
    model, series = linear_model(), linear_series(7, key=getkey())
    found = jax.jit(kalman)(model, series)
    prior = joint(model, series)
    for i in range(7):
        mean, covariance, _ = condition(*prior, model, series, i + 1)
        here = slice(2 * i, 2 * i + 2)
        assert np.allclose(found.filtered.mean[i], mean[here], atol=1e-10)
        assert np.allclose(found.filtered.covariance[i], covariance[here, here], atol=1e-10)
    mean, covariance, log_prob = condition(*prior, model, series, 7)
    assert np.allclose(np.ravel(found.smoothed.mean), mean, atol=1e-10)
    blocks = [covariance[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] for i in range(7)]
    assert np.allclose(found.smoothed.covariance, np.stack(blocks), atol=1e-10)
    assert np.allclose(found.log_likelihood, log_prob, atol=1e-9)


def test_padding_changes_nothing():
    model, key = linear_model(), jr.key(3)
    plain, padded = (jax.jit(kalman)(model, linear_series(6, padding=n, key=key)) for n in (0, 4))
    assert np.allclose(plain.smoothed.mean, padded.smoothed.mean[:6], atol=1e-12)
    assert np.allclose(plain.filtered.std, padded.filtered.std[:6], atol=1e-12)
    assert jnp.allclose(plain.log_likelihood, padded.log_likelihood, atol=1e-12)
