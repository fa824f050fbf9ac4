"""An SDE that you already have: drift and diffusion, solvers, and what its likelihood is.

Here live the SDE itself, plain-scan solvers and the Diffrax route, reference likelihoods (linear noise,
simulated, on a grid) and a few systems with names. Nothing learnt and no data; it knows `laws` and nothing
else of ours.
"""

from .diffrax_route import solve_path_diffrax as solve_path_diffrax
from .grid import GridLaw as GridLaw, grid_log_prob as grid_log_prob
from .model import SDE as SDE
from .reference import (
    Estimate as Estimate,
    Moments as Moments,
    guided_log_prob as guided_log_prob,
    linear_noise as linear_noise,
    linear_noise_log_prob as linear_noise_log_prob,
    simulated_log_prob as simulated_log_prob,
)
from .solve import solve as solve, solve_driven as solve_driven, solve_path as solve_path
from .solvers import (
    SOLVERS as SOLVERS,
    AbstractSolver as AbstractSolver,
    AdditiveRungeKutta as AdditiveRungeKutta,
    EulerMaruyama as EulerMaruyama,
    Heun as Heun,
    Increments as Increments,
    Milstein as Milstein,
    StochasticRungeKutta as StochasticRungeKutta,
    brownian_increments as brownian_increments,
    coarsen as coarsen,
)
from .systems import (
    cox_ingersoll_ross as cox_ingersoll_ross,
    double_well as double_well,
    fitzhugh_nagumo as fitzhugh_nagumo,
    geometric_brownian_motion as geometric_brownian_motion,
    heston as heston,
    langevin_chain as langevin_chain,
    lorenz as lorenz,
    lotka_volterra as lotka_volterra,
    ornstein_uhlenbeck as ornstein_uhlenbeck,
)
