"""How good a law is, and what it costs.

Estimates of distances between laws (KL by density estimates, energy distance), proper scores, calibration,
consistency, operations and run times live here: functions of arrays or of the interfaces in `laws`, which
return small tuples with an error beside every Monte-Carlo number. No training, no data sets, no drawing.
"""

from .calibration import (
    UniformityTest as UniformityTest,
    central_levels as central_levels,
    coverage as coverage,
    hdr_levels as hdr_levels,
    noise_levels as noise_levels,
    pit as pit,
    sample_pit as sample_pit,
    uniformity_test as uniformity_test,
)
from .consistency import (
    ConsistencyBound as ConsistencyBound,
    ConsistencyError as ConsistencyError,
    consistency_bound as consistency_bound,
    consistency_error as consistency_error,
)
from .estimates import (
    Estimate as Estimate,
    Place as Place,
    error_of_mean as error_of_mean,
    mean_and_se as mean_and_se,
    ratio_of_means as ratio_of_means,
)
from .flops import SampleFlops as SampleFlops, flops as flops, flops_per_sample as flops_per_sample
from .forecasts import (
    FORECAST_SCORES as FORECAST_SCORES,
    LEVEL as LEVEL,
    central_interval as central_interval,
    crps_of_draws as crps_of_draws,
    crps_of_normal as crps_of_normal,
    inside_central as inside_central,
    quantiles_of_draws as quantiles_of_draws,
    variogram_score as variogram_score,
)
from .kde import (
    KLEstimate as KLEstimate,
    cv_bandwidth as cv_bandwidth,
    kde_floor as kde_floor,
    kde_kl as kde_kl,
    kde_kl_kfold as kde_kl_kfold,
    kde_kls as kde_kls,
    kde_log_density as kde_log_density,
    pooled_kl as pooled_kl,
)
from .projections import projected_energy_distance as projected_energy_distance
from .scores import crps as crps, energy_distance as energy_distance, energy_score as energy_score
from .timing import Timing as Timing, interleave as interleave
