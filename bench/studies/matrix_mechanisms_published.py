"""Published numbers on matrix mechanisms, as data.

Tables are those of He, Xiao, Toksoz, Ding, Zhang & Kifer, "ResidualPlanner+: a scalable matrix
mechanism for marginals and beyond", at privacy cost 1. A missing value is one that the authors
could not compute. All are root mean square errors or largest variances.
"""

from __future__ import annotations

SIZES = {
    "CPS": (50, 100, 7, 4, 2),
    "Adult": (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2),
    "Loans": (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15),
}
NUMERIC = {"CPS": 2, "Adult": 5, "Loans": 4}  # how many of the first attributes are numeric
ORDERS = ("1", "2", "3", "4", "5", "<=3", "small")

# Tables 4 and 25-27: HDMM, ResidualPlanner (equal to the singular value bound), per order.
MARGINALS_RMSE = {
    "CPS": (
        (1.756, 2.103, 2.089, 1.648, 1.000, 2.301, 2.525),
        (1.744, 2.035, 2.048, 1.627, 1.000, 2.276, 2.525),
    ),
    "Adult": (
        (3.081, 6.504, 11.529, 16.618, 20.240, 11.555, 10.006),
        (3.047, 6.359, 10.515, 14.656, 17.844, 10.665, 9.945),
    ),
    "Loans": (
        (2.903, 5.747, 9.478, 12.537, 14.872, 9.406, 8.262),
        (2.875, 5.634, 8.702, 11.267, 12.678, 8.876, 8.206),
    ),
}
# Tables 5 and 28-30: HDMM (optimized for the sum), ResidualPlanner with Gurobi, per order.
MARGINALS_LARGEST = {
    "CPS": (
        (13.672, 47.741, 71.549, 15.538, 1.000, 415.073, 223.579),
        (4.346, 7.897, 7.706, 4.141, 1.000, 13.216, 11.774),
    ),
    "Adult": (
        (41.772, 599.843, 5675.238, 26959.322, 79817.002, 6677.253, 2586.980),
        (12.047, 67.802, 236.843, 575.213, 1030.948, 253.605, 126.902),
    ),
    "Loans": (
        (33.256, 437.478, 3095.997, 13776.417, 26056.289, 4317.709, 2330.883),
        (10.640, 52.217, 156.638, 320.778, 474.243, 180.817, 89.873),
    ),
}

PREFIX_ORDERS = ("1", "2", "3", "<=3")
# Table 8: HDMM, ResidualPlanner+.
PREFIX_RMSE = {
    "CPS": ((3.347, 6.625, 8.634, 8.623), (3.181, 6.357, 8.124, 8.392)),
    "Adult": ((5.648, 21.111, 60.025, 61.613), (5.114, 17.632, 47.193, 48.903)),
    "Loans": ((5.127, 17.149, 42.938, 44.338), (4.728, 14.913, 36.108, 36.651)),
}
# The authors' code of 2026-03, run on the workloads of Table 8.
PREFIX_RMSE_CODE = {
    "CPS": (3.181, 6.357, 8.124, 8.386),
    "Adult": (5.112, 17.621, 47.193, 47.103),
    "Loans": (4.725, 14.906, 36.113, 36.046),
}
# Best orthogonal bases (the optimum of QuerySmasher on these workloads), oblique bases: prototypes.
PREFIX_RMSE_KNOWN = {
    "CPS": ((3.135, 6.192, 7.886, 8.140), (3.063, 5.816, 7.300, 7.562)),
    "Adult": ((5.047, 17.190, 45.552, 45.465), (4.991, 16.771, 43.693, 43.623)),
    "Loans": ((4.670, 14.575, 34.991, 34.927), (4.615, 14.188, 33.414, 33.369)),
}
# Table 9: HDMM, ResidualPlanner+. Its code counts marginals of at most 5000 answers only.
PREFIX_LARGEST = {
    "CPS": ((32.788, 160.173, 57.015, 81.030), (7.158, 24.193, 12.814, 28.526)),
    "Adult": ((105.440, 922.546, 1958.304, 1813.099), (16.247, 88.718, 139.103, 165.942)),
    "Loans": ((87.830, 631.476, 981.259, 1261.880), (14.631, 66.074, 90.632, 124.318)),
}
# The mechanism of Table 9 at privacy cost 1, and oblique bases: prototypes.
PREFIX_LARGEST_KNOWN = {
    "CPS": ((13.31, 72.11, 26.92, 82.05), (9.75, 35.66, 18.66, 42.28)),
    "Adult": ((32.21, 202.9, 302.3, 369.3), (25.81, 157.1, 236.5, 287.4)),
    "Loans": ((27.97, 142.9, 189.9, 267.8), (22.32, 110.3, 147.7, 206.8)),
}

# Tables 10 (ranges) and 11 (prefixes), all d attributes at once, n = 2, 4, ..., 64: HDMM, RP+.
ONE_PRODUCT = {
    "ranges": {
        3: ((1.39, 2.11, 3.34, 5.29, 8.18, 12.20), (1.39, 2.25, 3.64, 5.77, 8.87, 13.18)),
        4: ((1.55, 2.70, 5.00, 9.23, 16.48, 28.09), (1.55, 2.95, 5.59, 10.34, 18.37, 31.13)),
        5: ((1.73, 3.47, 7.47, 16.08, 33.21, 64.67), (1.73, 3.86, 8.60, 18.54, 38.03, 73.54)),
    },
    "prefix": {
        3: ((1.50, 2.25, 3.34, 4.82, 6.77, 9.26), (1.50, 2.54, 4.01, 5.89, 8.23, 11.09)),
        4: ((1.71, 2.95, 4.99, 8.15, 12.82, 19.44), (1.71, 3.47, 6.37, 10.64, 16.62, 24.73)),
        5: ((1.96, 3.87, 7.45, 13.76, 24.25, 40.83), (1.96, 4.74, 10.12, 19.23, 33.56, 55.16)),
    },
}
# Tables 12-14, k-way prefixes of d attributes of n levels, by (n, d); n is not printed for the
# last one, whose columns identify it. RP+, OPT_kron, OPT_+.
K_WAY_PREFIX = {
    (10, 5): (
        (2.94, 5.84, 9.00, 11.48, 12.58),
        (3.59, 6.32, 8.44, 9.40, 9.13),
        (3.48, 7.66, 11.92, 13.11, None),
    ),
    (10, 10): (
        (3.91, 10.51, 22.50, 40.68, 64.26),
        (5.11, 12.90, 24.82, 39.95, 56.28),
        (4.92, 16.24, 41.28, 84.98, 144.86),
    ),
    (20, 20): (
        (6.31, 27.64, 97.23, 291.01, 765.37, 1805.21, 3872.58),
        (8.95, 39.51, 132.39, 369.15, 894.65, 1933.59, 3790.64),
        (7.84, 42.40, 182.18, 658.76, 2066.90, None, None),
    ),
}
# Oblique bases on the same workloads: prototypes.
K_WAY_PREFIX_KNOWN = {
    (10, 5): (2.79, 5.24, 7.62, 9.08, 9.13),
    (10, 10): (3.71, 9.47, 19.23, 32.93, 49.16),
    (20, 20): (6.04, 25.31, 85.14, None, 612.0, None, 2818.0),
}

# Tables 19 and 20: all marginals on up to 3 of 5 attributes of n levels; HDMM, ResidualPlanner.
LEVELS = {
    2: (1.903, 1.890, 8.091, 4.148),
    4: (2.685, 2.681, 44.693, 9.760),
    8: (3.156, 3.156, 180.343, 15.643),
    16: (3.367, 3.366, 588.115, 20.067),
    32: (3.422, 3.423, 1649.341, 22.811),
    64: (3.408, 3.407, 5560.807, 24.345),
    128: (3.371, 3.367, 12229.480, 25.157),
    256: (3.331, 3.322, 8168.716, 25.574),
    512: (3.294, 3.283, 32159.958, 25.786),
    1024: (3.328, 3.251, 277825.955, 25.893),
}
# Tables 21 and 22: all marginals on up to 3 of d attributes of 10 levels; HDMM, ResidualPlanner.
ATTRIBUTES = {
    2: (1.379, 1.379, 13.745, 3.306),
    4: (2.346, 2.345, 132.620, 10.480),
    6: (4.278, 4.275, 461.132, 26.904),
    8: (6.726, 6.638, 1000.000, 56.961),
    10: (9.629, 9.348, 1000.000, 105.031),
    12: (12.904, 12.359, 1000.000, 175.496),
    14: (16.506, 15.642, 1000.000, 272.738),
    15: (18.421, 17.378, 1000.000, 332.769),
    20: (None, 26.916, None, 768.941),
    30: (None, 49.713, None, 2540.440),
    50: (None, 107.258, None, 11597.037),
    100: (None, 303.216, None, 91960.917),
    200: (None, 855.330, None, None),
}
# Prefixes of d attributes of n levels, with the optimum over all matrix mechanisms by an
# independent dense dual ascent, as (n, d, orders): singular value bound, optimum.
EXACT = {
    (8, 3, "1"): (2.120, 2.169),
    (8, 3, "2"): (2.927, 3.085),
    (8, 3, "3"): (2.976, 3.337),
    (8, 3, "<=3"): (3.145, 3.407),
    (5, 4, "1"): (2.069, 2.109),
    (5, 4, "2"): (2.921, 3.049),
    (5, 4, "3"): (3.253, 3.529),
    (5, 4, "4"): (3.029, 3.507),
    (5, 4, "<=4"): (3.312, 3.633),
    (4, 5, "1"): (2.082, 2.116),
    (4, 5, "2"): (3.022, 3.133),
}

# Seconds printed in Tables 2, 3, 6 and 7 (read off the figures; 12 threads of an i7-8700): d,
# selection for the sum, selection for the largest variance, reconstruction; marginals, then ranges.
PAPER_SECONDS = {
    10: ((0.009, 0.018, 0.125), (0.164, 9.994, 0.0297)),
    30: ((0.247, 0.461, 3.587), (1.21, 172.0, 0.846)),
    100: ((9.913, 121.2, 154.5), (38.0, None, None)),
}
