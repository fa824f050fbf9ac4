"""One catalogue of laws and bridges. A new law is one new line."""

import jax.numpy as jnp

from stochflow.laws import (
    CIR,
    BrownianBridge,
    BrownianMotion,
    GeometricBrownianBridge,
    GeometricBrownianMotion,
    LinearBridge,
    LinearSDE,
    MatrixOrnsteinUhlenbeck,
    OrnsteinUhlenbeck,
    OrnsteinUhlenbeckBridge,
    Relative,
    Rhythm,
    Standardised,
    StandardisedBridge,
    Transformed,
)

SCALE = [[0.6, 0.3], [-0.2, 0.9]]
RATE = [[1.2, 0.7], [-0.4, 0.5]]

BROWNIAN = BrownianMotion([0.3, -0.2], SCALE)
OU = OrnsteinUhlenbeck([-0.7, 1e-9], [0.5, -1.0], [0.4, 1.1])
MATRIX_OU = MatrixOrnsteinUhlenbeck(RATE, [0.2, -0.3], SCALE)
LINEAR = LinearSDE([[-0.5, 1.0], [-1.0, -0.2]], [0.1, 0.4], SCALE, [[1.0, 0.0, 0.5], [0.3, -1.0, 0.0]])
LANGEVIN = LinearSDE([[0.0, 1.0], [-1.0, -0.5]], [0.0, 0.0], [[0.0], [0.8]])  # noise on the velocity only
RHYTHM = Rhythm([0.8], [0.3], 1.1, 0.4)
GEOMETRIC = GeometricBrownianMotion([0.1, -0.3], [0.4, 0.7])

# Every law takes the start `x_s`; those on x > 0 are two-dimensional too, so that one start serves all.
LAWS = {
    "brownian": BROWNIAN,
    "ornstein_uhlenbeck": OU,
    "matrix_ornstein_uhlenbeck": MATRIX_OU,
    "linear": LINEAR,
    "langevin": LANGEVIN,
    "rhythm": RHYTHM,
    "geometric": GEOMETRIC,
    "cir": CIR([1.1, 0.3], [0.8, 0.6], [0.5, 0.9]),  # the density of the second is infinite at 0
    "standardised": Standardised(MATRIX_OU, [1.0, -2.0], [3.1, 0.7], 2.5, 40.0),
    "relative": Relative(MATRIX_OU, (1,)),
    "transformed": Transformed(MATRIX_OU, ["positive", (-0.5, 2.0)]),
}

# A bridge, with the law whose bridge it is.
BRIDGES = {
    "brownian": (BROWNIAN, BrownianBridge(BROWNIAN)),
    "ornstein_uhlenbeck": (OU, OrnsteinUhlenbeckBridge(OU)),
    "matrix_ornstein_uhlenbeck": (MATRIX_OU, LinearBridge(MATRIX_OU)),
    "linear": (LINEAR, LinearBridge(LINEAR)),
    "langevin": (LANGEVIN, LinearBridge(LANGEVIN)),
    "rhythm": (RHYTHM, LinearBridge(RHYTHM)),
    "geometric": (GEOMETRIC, GeometricBrownianBridge(GEOMETRIC)),
    "standardised": (
        LAWS["standardised"],
        StandardisedBridge(LinearBridge(MATRIX_OU), [1.0, -2.0], [3.1, 0.7], 2.5),
    ),
}

X_S = jnp.array([0.7, 1.3])
U = jnp.array([0.5, -0.2, 1.0])
