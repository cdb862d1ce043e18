"""Error bars of fields: conformal bands, scores, and out-of-distribution tests.

All functions are pure and act on one case, or on the scores of several. The coverage of
a band is the fraction of cases whose whole field lies inside; `conformal_quantile`
states the theorem and its assumptions.
"""

from opjax.uncertainty.conformal import (
    Band,
    band,
    check_cases,
    conformal_quantile,
    field_score,
    least_cases,
    pointwise_quantile,
    pointwise_scores,
)
from opjax.uncertainty.detection import detectable_shifts
from opjax.uncertainty.groups import (
    Group,
    GroupedLikeness,
    alarm_margin,
    likeness_of_groups,
)
from opjax.uncertainty.likeness import (
    Likeness,
    area_under_curve,
    conformal_p_value,
    field_moments,
    likeness,
    shrunk_distances,
    wave_means,
)
from opjax.uncertainty.posterior import Normal, laplace
from opjax.uncertainty.ranking import Choice, greedy_choice
from opjax.uncertainty.regression import ridge_variance
from opjax.uncertainty.scores import (
    calibration_curve,
    field_inside,
    gaussian_nll,
    mean_width,
    pointwise_coverage,
    sparsification_curve,
)

__all__ = [
    "Band",
    "Choice",
    "Group",
    "GroupedLikeness",
    "Likeness",
    "Normal",
    "alarm_margin",
    "area_under_curve",
    "band",
    "calibration_curve",
    "check_cases",
    "conformal_p_value",
    "conformal_quantile",
    "detectable_shifts",
    "field_inside",
    "field_moments",
    "field_score",
    "gaussian_nll",
    "greedy_choice",
    "laplace",
    "least_cases",
    "likeness",
    "likeness_of_groups",
    "mean_width",
    "pointwise_coverage",
    "pointwise_quantile",
    "pointwise_scores",
    "ridge_variance",
    "shrunk_distances",
    "sparsification_curve",
    "wave_means",
]
