"""Four laws that are known, learnt from samples to within 0.05 nats; minutes, hence slow."""

import pytest

from stochflow.experiments.four_laws import known_laws, learn

BOUND = 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", known_laws())
def test_a_known_law_is_learnt_to_within_the_bound(name):
    verdict = learn(known_laws()[name])
    assert verdict.shortfall < BOUND
    assert verdict.seconds < 60
    assert verdict.shortfall > -5 * verdict.difference_se  # no law is better than the exact one
