"""The faults: what is replaced where, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One change of one file.

    Attributes:
      name: What is wrong with the changed program.
      file: Path in the repository.
      old: Text that occurs there exactly once.
      new: Text put in its place.
      tests: Ids of tests that fail with the fault and pass without it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


TABLE = "das/mechanisms/table.py"
WIDE = "das/mechanisms/wide.py"
CERTIFIED = "das/mechanisms/certified.py"
ENTROPY = "das/mechanisms/entropy.py"
NOISE = "das/mechanisms/noise.py"
GAUSSIAN = "das/mechanisms/gaussian.py"
LAPLACE = "das/mechanisms/laplace.py"
REFERENCE = "tests/evidence/reference.py"
MEASURE = "das/measure.py"
SENSITIVITY = "das/queries/sensitivity.py"
STRATEGY = "das/strategy.py"
JOINT = "das/queries/joint_sensitivity.py"
CHANGES = "das/change_costs.py"
MEASUREMENT = "das/workload/residual/integer_plan.py"
LEDGER = "das/privacy/ledger.py"
ACCOUNTING = "das/privacy/accounting.py"
STAGE = "jobs/pipeline/confidential/measure.py"
DRAW = "jobs/pipeline/confidential/draw.py"
DRAWS = "jobs/pipeline/folder/draws.py"
STRUCTURE = "solvers/least_squares/blocks.py"
KERNELS = "solvers/least_squares/kernels.py"
OPTIMALITY = "solvers/least_squares/certificate.py"
SOLVER = "solvers/least_squares/solve.py"
TREE_PASS = "das/tree/passes.py"
FACILITY_RUNS = "tests/pipeline/local/test_facilities.py::"
TARGETS = "das/tree/targets.py"
LACKED = (
    "tests/unit/jobs/pipeline/release/test_estimate.py"
    "::test_types_that_a_geounit_lacks_are_known_to_be_empty"
)
AREA = "das/tree/area.py"
RUN_INTERVALS = "tests/pipeline/local/test_run_intervals.py::"
INTERVALS = "das/tree/intervals.py"
POSTERIOR = "das/tree/prior.py"
LEARNED = "tests/pipeline/local/test_learned_counts.py::"
LEARNED_UNIT = "tests/unit/jobs/pipeline/release/test_learned.py::"
LARGEST = "das/tree/largest.py"
GROUPS = "jobs/design/planning/groups.py"
PROPOSALS = "jobs/design/drafting/attributes.py"
SPINE_FILES = "jobs/pipeline/input/spine.py"
RESPINE = "geography/respine.py"
OFFSPINE = "geography/offspine.py"
CLIPPED_SUMS = "das/means/measure.py"
MEANS = "das/means/estimates.py"
ADAPTIVE = "das/synthesis/adaptive.py"
MARGINALS = "das/synthesis/measure.py"
EXPONENTIAL = "das/mechanisms/exponential.py"
CONDITIONING = "das/privacy/conditioning.py"
CONDITIONAL = "das/mechanisms/conditional.py"
TABLE_PLAN = "jobs/survey/plan.py"
CHAIN = "das/inference/conditional.py"
LIKELIHOOD = "das/inference/expectation_maximization.py"
SURVEY_FILES = "jobs/survey/confidential/read.py"
SURVEY_PLAN = "jobs/survey/plan.py"
SURVEY_COSTS = "jobs/survey/measurements.py"
IMPLIED = "invariants/implied.py"
LEAVES = "invariants/leaves.py"
BETWEEN = "invariants/between.py"
FACILITIES = "invariants/facilities.py"
EXACT = "invariants/exact.py"
BOUNDED = "solvers/objectives/bounded.py"
METHODS = "solvers/objectives/in_node.py"
PENALTY = "solvers/objectives/penalty.py"
NODE_CHECK = "solvers/verify.py"
ACCOUNT = "jobs/pipeline/storage/account.py"
BUDGET = "das/privacy/budget.py"
FINALIZING = "jobs/pipeline/release/finalizing.py"
VERIFYING = "jobs/pipeline/release/verify.py"
RESIDUALS = "jobs/pipeline/release/verify.py"

TABLE_LAW = "tests/evidence/exact/test_table_law.py::"
REFERENCE_LAW = "tests/evidence/exact/test_reference_law.py::"
TABLE_UNIT = "tests/unit/das/mechanisms/test_table.py::"
WIDE_UNIT = "tests/unit/das/mechanisms/test_wide.py::"
COUNTER_BLOCKS = "tests/evidence/exact/test_counter_blocks.py::"
ENTROPY_UNIT = "tests/unit/das/mechanisms/test_entropy.py::"
NOISE_UNIT = "tests/unit/das/mechanisms/test_noise.py::"
MECHANISM_UNIT = "tests/unit/das/mechanisms/test_mechanism.py::"
MEASURE_UNIT = "tests/unit/das/test_measure.py::"
NOISE_KEY_UNIT = "tests/unit/jobs/pipeline/confidential/test_noise_key.py::"
JOINT_ORACLE = "tests/unit/das/queries/test_joint_sensitivity_oracle.py::"
CHANGES_UNIT = "tests/unit/das/test_change_costs.py::"
BUDGET_UNIT = "tests/unit/das/privacy/test_budget.py::"
LEDGER_UNIT = "tests/unit/das/privacy/test_ledger.py::"
SPINE_FILES_UNIT = "tests/unit/jobs/pipeline/input/test_spine.py::"
RESPINE_UNIT = "tests/unit/geography/test_respine.py::"
RESPINE_LAWS = "tests/unit/geography/test_respine_properties.py::"
OFFSPINE_ORACLE = "tests/unit/geography/test_offspine_oracle.py::"
PROPOSALS_UNIT = "tests/unit/jobs/design/drafting/test_attributes.py::"
PLANNED_LOSSES = (
    "tests/unit/das/privacy/test_loss_distribution.py::"
    "test_no_neighbors_lose_more_of_a_planned_strategy_and_some_nearly_as_much"
)
DIVERGENCE = "tests/evidence/privacy/test_divergence.py::"
SOLVER_UNIT = "tests/unit/solvers/least_squares/test_solve.py::"
STAGE_TEST = "tests/evidence/privacy/test_measure_stage.py::"
MEASURE_TEST = "tests/unit/jobs/pipeline/confidential/test_measure.py::"
SURVEYS = "tests/pipeline/local/test_surveys.py::"
ESTIMATION = "tests/unit/das/tree/test_estimation_oracle.py::"
LARGEST_UNIT = "tests/unit/das/tree/test_largest_oracle.py::"
GROUPS_UNIT = "tests/unit/jobs/design/planning/test_group_errors.py::"
INTERVALS_UNIT = "tests/unit/das/tree/test_intervals.py::"
POSTERIOR_UNIT = "tests/unit/das/tree/test_prior.py::"
MEANS_UNIT = "tests/unit/das/means/test_coinpress.py::"
SURVEY_COSTS_UNIT = "tests/unit/jobs/survey/test_measurements.py::"
ADAPTIVE_UNIT = "tests/unit/das/synthesis/test_adaptive.py::"
SYNTHESIS_UNIT = "tests/unit/das/synthesis/test_synthesis.py::"
STRATA_UNIT = "tests/unit/das/synthesis/test_strata.py::"
EXPONENTIAL_UNIT = "tests/unit/das/mechanisms/test_exponential.py::"
TABLE_PLAN_UNIT = "tests/unit/jobs/survey/test_table_plan.py::"
CONDITIONAL_ORACLE = "tests/unit/das/mechanisms/test_conditional_oracle.py::"
CHAIN_ORACLE = "tests/unit/das/inference/test_conditional_oracle.py::"
LIKELIHOOD_ORACLE = "tests/unit/das/inference/test_expectation_maximization_oracle.py::"
SURVEY_PARTS_UNIT = "tests/unit/jobs/survey/confidential/test_measure.py::"
SURVEY_FILES_UNIT = "tests/unit/jobs/survey/confidential/test_read.py::"
SURVEY_PLAN_UNIT = "tests/unit/jobs/survey/test_plan.py::"
IMPLIED_UNIT = "tests/unit/invariants/test_implied.py::"
LEAVES_UNIT = "tests/unit/invariants/test_leaves.py::"
BETWEEN_UNIT = "tests/unit/invariants/test_between.py::"
RUNNABLE_TEST = "tests/pipeline/local/test_runnable.py::"
EXPORT_TEST = "tests/pipeline/local/test_export.py::"
INVARIANTS_UNIT = "tests/unit/jobs/pipeline/config/test_invariants_section.py::"
EXACT_UNIT = "tests/unit/invariants/test_exact.py::"
OBJECTIVES_ORACLE = "tests/unit/solvers/objectives/test_postprocessing_oracle.py::"
PENALTY_UNIT = "tests/unit/solvers/objectives/test_penalty.py::"
NODE_CHECK_UNIT = "tests/unit/solvers/test_verify.py::"
ACCOUNT_UNIT = "tests/unit/jobs/pipeline/storage/test_account.py::"
FINALIZING_UNIT = "tests/unit/jobs/pipeline/release/test_finalizing.py::"
LIMITS_UNIT = "tests/unit/jobs/pipeline/release/test_verify_limits.py::"
RESIDUALS_UNIT = "tests/unit/jobs/pipeline/release/test_residuals.py::"

PRODUCTS = "das/workload/residual/products.py"
SURVEY_RESULTS = "jobs/survey/results.py"
PRODUCTS_ORACLE = "tests/unit/das/workload/residual/test_products.py::"
SURVEY_MARGINALS = "tests/pipeline/local/test_survey_marginals.py::"


FAULTS = (
    # --- tables ---
    Fault(
        "normal noise is taken for wider than the discrete noise",
        "das/mechanisms/normal.py",
        "return noise.sigma_sq - smooth",
        "return noise.sigma_sq + smooth",
        (PLANNED_LOSSES,),
    ),
    Fault(
        "rounding takes nothing of normal noise",
        "das/mechanisms/normal.py",
        "return noise.sigma_sq - smooth",
        "return noise.sigma_sq",
        (
            "tests/unit/das/privacy/test_loss_distribution.py::"
            "test_what_rounds_normal_noise_is_no_noise_of_it",
        ),
    ),
    Fault(
        "a change within a geounit costs as much as an added record",
        "das/privacy/joint_shifts.py",
        "joint.column if neighbors is Neighbors.UNBOUNDED else joint.pair",
        "joint.column",
        (PLANNED_LOSSES,),
    ),
    Fault(
        "no changed record moves to another geounit",
        "das/privacy/loss_distribution.py",
        "if tiled and apart and first:",
        "if tiled and apart and not first:",
        (PLANNED_LOSSES,),
    ),
    Fault(
        "thresholds are one too large",
        TABLE,
        "np.array(_certain_floors(weights, word_bits), np.uint64)",
        "np.array(_certain_floors(weights, word_bits), np.uint64) + np.uint64(1)",
        (TABLE_LAW + "test_thresholds_are_the_true_floors",),
    ),
    Fault(
        "thresholds are rounded up",
        TABLE,
        "return floors[: floors.index(top) + 1]",
        "return [min(f + 1, top) for f in floors[: floors.index(top) + 1]]",
        (TABLE_LAW + "test_thresholds_are_the_true_floors",),
    ),
    Fault(
        "a search finds the entry before",
        TABLE,
        'np.searchsorted(self.thresholds, prefix, side="right")',
        'np.searchsorted(self.thresholds, prefix, side="left")',
        (TABLE_LAW + "test_lookup_agrees_with_draw",),
    ),
    Fault(
        "the guide decides cells that a threshold cuts",
        TABLE,
        'np.searchsorted(thresholds, final, side="right")',
        'np.searchsorted(thresholds, final, side="left")',
        (TABLE_LAW + "test_lookup_agrees_with_draw",),
    ),
    Fault(
        "a tie is decided without further bits",
        TABLE,
        "return self._settle(prefix, bits) if is_tied else magnitude",
        "return magnitude",
        (TABLE_LAW + "test_gaussian_table",),
    ),
    Fault(
        "undecided draws become zero",
        TABLE,
        "values[i] = self.resolve(int(words[i]), more(i))",
        "values[i] = 0",
        (TABLE_UNIT + "test_draw_many_settles_what_is_undecided",),
    ),
    Fault(
        "the sign bit is data too",
        TABLE,
        "prefix = (words << np.uint64(1)) >> np.uint64(STORED_BITS - self.word_bits)",
        "prefix = words >> np.uint64(STORED_BITS - self.word_bits)",
        (TABLE_LAW + "test_lookup_agrees_with_draw",),
    ),
    Fault(
        "the tail beyond the table is cut off",
        TABLE,
        "                return magnitude\n\n\n@lru_cache",
        "                return min(magnitude, len(self.thresholds) - 1)\n\n\n@lru_cache",
        (TABLE_UNIT + "test_all_ones_reach_beyond_every_table_entry",),
    ),
    Fault(
        "a draw is settled before its bits decide it",
        TABLE,
        "if magnitude < len(bounds.low) and beyond <= bounds.low[magnitude]:",
        "if magnitude < len(bounds.low):",
        (TABLE_LAW + "test_numbers_next_to_a_threshold_are_settled_correctly",),
    ),
    # --- bounds and laws ---
    Fault(
        "the lower bound of exp is rounded up",
        CERTIFIED,
        "return (low << precision) // low_scale,",
        "return _ceil_div(low << precision, low_scale),",
        (TABLE_LAW + "test_exp_bounds_enclose_exp_closely",),
    ),
    Fault(
        "upper bounds of products are rounded down",
        CERTIFIED,
        "return -(-a >> n)",
        "return a >> n",
        (TABLE_LAW + "test_unnormalised_masses_are_rounded_outward",),
    ),
    Fault(
        "the mass beyond the sum is forgotten",
        CERTIFIED,
        "high_total = high[-1] + beyond",
        "high_total = high[-1]",
        (TABLE_LAW + "test_bounds_hold_however_early_the_sum_stops",),
    ),
    Fault(
        "sigma in the place of sigma^2",
        CERTIFIED,
        "return cls(1 / (2 * sigma_sq), 1 / sigma_sq, is_two_sided)",
        "return cls(1 / (2 * sigma_sq**2), 1 / sigma_sq**2, is_two_sided)",
        (TABLE_LAW + "test_every_sigma_sq_has_a_sampler_of_its_law",),
    ),
    Fault(
        "zero counts twice in the reference",
        REFERENCE,
        "if magnitude or not is_negative:",
        "if True:",
        (REFERENCE_LAW + "test_discrete_laplace",),
    ),
    # --- two levels ---
    Fault(
        "every attempt is accepted",
        WIDE,
        "is_accepted = _uniform_is_below_exp(gamma, bits)",
        "is_accepted = True",
        (TABLE_LAW + "test_one_attempt_of_wide_laplace",),
    ),
    Fault(
        "every attempt is accepted on the fast path",
        WIDE,
        "is_accepted = uniform + slack < 1.0 - gamma",
        "is_accepted = uniform < 2.0",
        (WIDE_UNIT + "test_uniform_numbers_next_to_the_limit_of_acceptance",),
    ),
    Fault(
        "the fast path accepts a little too much",
        WIDE,
        "is_accepted = uniform + slack < 1.0 - gamma",
        "is_accepted = uniform < 1.0 - gamma + gamma * gamma",
        (WIDE_UNIT + "test_uniform_numbers_next_to_the_limit_of_acceptance",),
    ),
    Fault(
        "a negative zero is kept",
        WIDE,
        "if is_accepted and (magnitude or not is_negative):",
        "if is_accepted:",
        (TABLE_LAW + "test_one_attempt_of_wide_laplace",),
    ),
    Fault(
        "a negative zero is kept on the fast path",
        WIDE,
        "is_accepted &= (values > 0) | ~is_negative",
        "is_accepted &= values >= 0",
        (WIDE_UNIT + "test_a_negative_zero_is_drawn_again",),
    ),
    Fault(
        "the exponent forgets its mixed term",
        WIDE,
        "gamma = rest * (self.linear + self.quadratic * (2 * leading + rest))",
        "gamma = rest * (self.linear + self.quadratic * rest)",
        (TABLE_LAW + "test_one_attempt_of_wide_gaussian",),
    ),
    # --- streams ---
    Fault(
        "a key ignores the position",
        ENTROPY,
        "derive_key(key.secret, WORDS, _encoded(position))",
        'derive_key(key.secret, WORDS, b"")',
        (
            MEASURE_UNIT + "test_two_queries_of_one_geounit_have_different_noise",
            COUNTER_BLOCKS + "test_no_run_draws_from_a_stream_twice[strata]",
        ),
    ),
    Fault(
        "a key ignores all but the first index",
        ENTROPY,
        'f">{len(position)}Q", *position)',
        'f">{len(position)}Q", *position[:1], *(0 for _ in position[1:]))',
        (ENTROPY_UNIT + "test_words_of_all_rows_positions_and_keys_are_apart",),
    ),
    Fault(
        "keys are derived without their label",
        ENTROPY,
        "label=label,",
        'label=b"",',
        (ENTROPY_UNIT + "test_labels_and_contexts_are_told_apart",),
    ),
    Fault(
        "the counter stands behind the fixed data",
        ENTROPY,
        "CounterLocation.BeforeFixed",
        "CounterLocation.AfterFixed",
        (ENTROPY_UNIT + "test_the_words_of_a_key_never_change",),
    ),
    Fault(
        "rows are opened a second time",
        ENTROPY,
        "if rows[0] < self._next_row.get(position, 0) or (np.diff(rows) <= 0).any():",
        "if (np.diff(rows) <= 0).any():",
        (ENTROPY_UNIT + "test_rows_are_opened_once_and_rising",),
    ),
    Fault(
        "bits are opened a second time",
        ENTROPY,
        "if position in self._bits:",
        "if False:",
        (ENTROPY_UNIT + "test_bits_are_opened_once",),
    ),
    Fault(
        "a row gets noise a second time",
        ENTROPY,
        "if self._is_drawn[some].any():",
        "if False:",
        (NOISE_UNIT + "test_a_row_never_gets_noise_twice",),
    ),
    Fault(
        "rows share their words",
        NOISE,
        "words = stream.words(some, words_per_row).reshape(-1)",
        "words = stream.words(some[:1], words_per_row).repeat(len(some), axis=0).reshape(-1)",
        (NOISE_UNIT + "test_keys_positions_and_rows_change_the_noise",),
    ),
    Fault(
        "all blocks of a row have one number",
        ENTROPY,
        "blocks[:, :, 1] = np.arange(n_blocks)",
        "blocks[:, :, 1] = 0",
        (
            ENTROPY_UNIT + "test_many_words_do_not_repeat",
            COUNTER_BLOCKS + "test_no_run_draws_from_a_stream_twice[units]",
        ),
    ),
    Fault(
        "all draws of a row share their further bits",
        ENTROPY,
        "int(self.rows[index]), draw)",
        "int(self.rows[index]), 0)",
        (ENTROPY_UNIT + "test_further_bits_are_apart_from_all_words_and_each_other",),
    ),
    Fault(
        "further bits come under the label of words",
        ENTROPY,
        'FURTHER_BITS = b"das noise further bits"',
        "FURTHER_BITS = WORDS",
        (COUNTER_BLOCKS + "test_words_and_bits_come_under_keys_of_their_own",),
    ),
    Fault(
        "the key is not used",
        ENTROPY,
        "return kdf.derive(secret)",
        "return kdf.derive(bytes(KEY_BYTES))",
        (NOISE_UNIT + "test_keys_positions_and_rows_change_the_noise",),
    ),
    Fault(
        "columns of a row share their bits",
        NOISE,
        "words = stream.words(some, words_per_row).reshape(-1)",
        "words = stream.words(some, sampler.words_per_draw).repeat(n_columns, axis=0).reshape(-1)",
        (NOISE_UNIT + "test_columns_of_a_row_have_noise_of_their_own",),
    ),
    # --- costs ---
    Fault(
        "a Gaussian of half the variance",
        GAUSSIAN,
        "return cls(sensitivity / (2 * cost))",
        "return cls(sensitivity / (4 * cost))",
        (DIVERGENCE + "test_one_query_under_zcdp_costs_exactly_rho",),
    ),
    Fault(
        "the scale is epsilon / Delta",
        LAPLACE,
        "return cls(sensitivity / cost)",
        "return cls(cost / sensitivity)",
        (DIVERGENCE + "test_one_query_under_pure_privacy_costs_exactly_epsilon",),
    ),
    Fault(
        "pure privacy is paid with the L2 sensitivity",
        LAPLACE,
        "MappingProxyType({Definition.PURE: Norm.L1})",
        "MappingProxyType({Definition.PURE: Norm.L2_SQUARED})",
        (DIVERGENCE + "test_one_query_under_pure_privacy_costs_exactly_epsilon",),
    ),
    Fault(
        "a changed record moves one answer only",
        SENSITIVITY,
        "apart = [2 * product]",
        "apart = [product]",
        (DIVERGENCE + "test_one_query_under_zcdp_costs_exactly_rho",),
    ),
    Fault(
        "planned queries: a change within a geounit is forgotten",
        JOINT,
        "return max(2 * self.column, self.pair)",
        "return 2 * self.column",
        (JOINT_ORACLE + "test_a_change_within_a_geounit_may_be_worse_than_a_move",),
    ),
    Fault(
        "planned queries: a box has its upper corner alone",
        JOINT,
        "for at in (int(rows[:, kind, 2].argmin()), int(rows[:, kind, 2].argmax())):",
        "for at in (int(rows[:, kind, 2].argmax()), int(rows[:, kind, 2].argmax())):",
        (JOINT_ORACLE + "test_boxes_of_pairs_come_close",),
    ),
    Fault(
        "residual plans are charged for moves alone",
        MEASUREMENT,
        "joint = round_up(max(Fraction(2), _worst_pair(draft, shares)))",
        "joint = Fraction(2)",
        (
            "tests/unit/das/workload/residual/test_integer_plan.py::test_a_change_within_a_geounit_is_paid_for",
        ),
    ),
    Fault(
        "rows with negative entries are stated as partitions",
        CHANGES,
        "ratio /= sensitivity(entry.query, neighbors, norm)",
        "ratio = Fraction(2)",
        (
            CHANGES_UNIT + "test_listed_queries_cost_by_their_own_sensitivities"
            "[residual(sex)-zcdp-4]",
        ),
    ),
    Fault(
        "a planned change of an attribute costs what an added record costs",
        CHANGES,
        "alone = (min(record, cost * change) for change in joint.attributes)",
        "alone = (min(record, cost * change / 2) for change in joint.attributes)",
        (CHANGES_UNIT + "test_planned_queries_cost_what_their_worst_pair_costs[orp-unbounded]",),
    ),
    Fault(
        "opposite signs within a geounit are forgotten",
        SENSITIVITY,
        "return max(apart)",
        "return 2 * product",
        (DIVERGENCE + "test_one_query_under_zcdp_costs_exactly_rho",),
    ),
    Fault(
        "a changed record moves one answer only, in L1",
        SENSITIVITY,
        "return product if neighbors is Neighbors.UNBOUNDED else 2 * product",
        "return product",
        (DIVERGENCE + "test_one_query_under_pure_privacy_costs_exactly_epsilon",),
    ),
    Fault(
        "the share of the geolevel is dropped",
        STRATEGY,
        "cost = budget.total * share * entry.share",
        "cost = budget.total * entry.share",
        (DIVERGENCE + "test_a_tree_under_pure_privacy",),
    ),
    Fault(
        "a chain drops the share of its last geolevel",
        STRATEGY,
        "in levels[first : last + 1]",
        "in levels[first : max(last, first + 1)]",
        (BUDGET_UNIT + "test_a_chain_of_only_children_has_the_shares_of_its_geolevels",),
    ),
    Fault(
        "a chain has the share of one geolevel too many",
        STRATEGY,
        "in levels[first : last + 1]",
        "in levels[first : last + 2]",
        (DIVERGENCE + "test_a_tree_under_pure_privacy",),
    ),
    Fault(
        "finalizing accepts less than was granted",
        LEDGER,
        "if low != self.granted or high != self.granted:",
        "if high > self.granted:",
        (LEDGER_UNIT + "test_a_path_that_spends_too_little_is_noticed_beside_good_ones",),
    ),
    Fault(
        "a stratum is finalized with what another spends",
        LEDGER,
        'entry.cost if entry.stratum in ("", stratum) else Fraction(0)',
        "entry.cost",
        (LEDGER_UNIT + "test_strata_do_not_add_up_and_every_one_is_finalized",),
    ),
    Fault(
        "a query of a stratum counts everybody",
        "das/queries/query.py",
        "inside = np.where(allowed, factor.matrix, 0)",
        "inside = factor.matrix",
        (
            "tests/unit/das/queries/test_group.py::test_a_restricted_query_is_the_query_with_zero_columns_outside",
        ),
    ),
    Fault(
        "strata may overlap",
        STRATEGY,
        "if first.group.meets(second.group):",
        "if first.group is second.group:",
        ("tests/unit/das/test_strategy_strata.py::test_what_is_no_promise_is_refused",),
    ),
    Fault(
        "strata share a budget",
        STRATEGY,
        "total += self.chain_share(0, len(self.levels) - 1, stratum)",
        "total += self.chain_share(0, len(self.levels) - 1, self.strata[0])",
        ("tests/unit/das/test_strategy_strata.py::test_what_is_no_promise_is_refused",),
    ),
    Fault(
        "a change out of a planned stratum costs what one within does",
        CHANGES,
        "max(touched[name], place) for name in leaving",
        "touched[name] for name in leaving",
        ("tests/evidence/privacy/test_strata.py::test_planned_strata_cost_no_more_than_is_stated",),
    ),
    Fault(
        "more may be spent than was granted",
        LEDGER,
        "if spent > self.granted:",
        "if spent > 2 * self.granted:",
        (
            "tests/unit/jobs/pipeline/storage/test_ledger.py::test_overspending_is_refused_before_it_is_recorded",
        ),
    ),
    Fault(
        "epsilon is rounded down",
        "das/rational.py",
        "return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)",
        "return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, -math.inf)",
        (DIVERGENCE + "test_the_claim_is_the_least_over_all_orders_rounded_up",),
    ),
    Fault(
        "a pure epsilon costs a quarter of its square in zCDP",
        "das/privacy/cost.py",
        "ZeroConcentrated(cost.epsilon**2 / 2)",
        "ZeroConcentrated(cost.epsilon**2 / 4)",
        (DIVERGENCE + "test_pure_privacy_costs_half_its_square_in_zcdp",),
    ),
    # --- measuring ---
    Fault(
        "one query is published without noise",
        MEASURE,
        "add_noise_in_place(noisy, mechanism",
        "add_noise_in_place(noisy if query.size > 1 else noisy.copy(), mechanism",
        (STAGE_TEST + "test_every_query_of_every_measured_geounit_is_published_with_noise",),
    ),
    Fault(
        "empty cells have no noise",
        NOISE,
        "else some] += block",
        "else some] += block * (answers[some] != 0)",
        (STAGE_TEST + "test_noise_is_the_same_whatever_the_truth_is",),
    ),
    Fault(
        "all geolevels share a key",
        DRAW,
        "key = NoiseKey.draw() if",
        'key = globals().setdefault("_KEY", NoiseKey.draw()) if',
        (STAGE_TEST + "test_every_geolevel_and_every_start_has_a_key_of_its_own",),
    ),
    Fault(
        "one share of a key is the key",
        ENTROPY,
        "share = _system_bytes(KEY_BYTES)",
        "share = bytes(KEY_BYTES)",
        (NOISE_KEY_UNIT + "test_neither_share_is_the_key_nor_the_same_twice",),
    ),
    Fault(
        "the share of a key stays when its tasks are done",
        "jobs/pipeline/confidential/noise_key.py",
        "        with writing(file):\n            file.unlink(missing_ok=True)",
        "        pass",
        (
            NOISE_KEY_UNIT + "test_after_the_tasks_nobody_puts_the_key_together",
            STAGE_TEST + "test_after_a_geolevel_its_key_cannot_be_put_together",
        ),
    ),
    Fault(
        "a key that can be guessed protects a release",
        STAGE,
        "key.is_for_testing and not plan.not_for_release",
        "False",
        (STAGE_TEST + "test_a_key_that_can_be_guessed_is_refused_where_a_release_is_planned",),
    ),
    Fault(
        "a run that could not be finished is begun",
        "jobs/pipeline/run.py",
        "require_runnable(resolved)\n    refuse_unreadable(resolved)\n    refuse_finalized",
        "refuse_unreadable(resolved)\n    refuse_finalized",
        (
            RUNNABLE_TEST + "test_a_run_is_refused_before_anything_is_written[run RUN]",
            RUNNABLE_TEST + "test_a_program_that_runs_it_is_refused_before_anything_is_written",
        ),
    ),
    Fault(
        "a run that could not be finished is measured",
        "jobs/pipeline/run.py",
        "require_runnable(resolved)\n    refuse_unreadable(resolved)\n    with",
        "refuse_unreadable(resolved)\n    with",
        (
            RUNNABLE_TEST
            + "test_a_run_is_refused_before_anything_is_written[run RUN --only measure]",
        ),
    ),
    Fault(
        "a run that could not be finished is solved",
        "jobs/pipeline/run.py",
        "require_runnable(resolved)\n    refuse_finalized(resolved)\n    with open_job",
        "refuse_finalized(resolved)\n    with open_job",
        (RUNNABLE_TEST + "test_what_is_measured_is_not_solved[RUN --only solve]",),
    ),
    Fault(
        "a run that could not be finished is evaluated",
        "jobs/pipeline/run.py",
        "require_runnable(resolved)\n    roots",
        "roots",
        (RUNNABLE_TEST + "test_an_evaluation_by_too_many_groups_is_refused",),
    ),
    Fault(
        "a run that could not be finished is valid",
        "jobs/cli/runs.py",
        "require_runnable(resolved)\n    lines = list[str]()",
        "lines = list[str]()",
        (RUNNABLE_TEST + "test_a_run_is_refused_before_anything_is_written[validate RUN]",),
    ),
    Fault(
        "a folder whose run could not be finished is gone through",
        "jobs/pipeline/run.py",
        "require_runnable(resolved)\n    refuse_finalized(resolved)\n    with only_driver",
        "refuse_finalized(resolved)\n    with only_driver",
        (RUNNABLE_TEST + "test_what_is_measured_is_not_solved[OUT --check]",),
    ),
    Fault(
        "a run that could not be finished is planned",
        "jobs/cli/design.py",
        "    require_runnable(resolved)\n",
        "",
        (RUNNABLE_TEST + "test_a_run_is_refused_before_anything_is_written[plan RUN]",),
    ),
    Fault(
        "a run that could not be finished is rehearsed",
        "jobs/design/synthetic/rehearsal.py",
        "    require_runnable(resolved)\n",
        "",
        (RUNNABLE_TEST + "test_it_is_not_rehearsed",),
    ),
    Fault(
        "a run that could not be finished is repeated",
        "jobs/analysis/replicate.py",
        "    require_runnable(resolved)\n",
        "",
        (RUNNABLE_TEST + "test_a_finished_release_is_not_repeated_but_read",),
    ),
    Fault(
        "tables of all geolevels have the intervals of leaves",
        "jobs/pipeline/release/tables.py",
        "classes.get((geolevel, query.name))",
        "classes.get((plan.leaf.name, query.name))",
        (RUN_INTERVALS + "test_tables_have_intervals_that_need_no_truth",),
    ),
    Fault(
        "replicates of a run are made of the truth",
        "jobs/pipeline/storage/layout.py",
        "return self.released.counts(geolevel)",
        'return _within(self.released.shared.parent) / "products/persons/histograms" / '
        'f"level={geolevel}"',
        (RUN_INTERVALS + "test_tables_have_intervals_that_need_no_truth",),
    ),
    Fault(
        "leaves that a replicate leaves out count as errors",
        "jobs/pipeline/release/intervals.py",
        "codes = texts(geounits)[np.array(solved)]",
        "codes = texts(geounits)",
        (RUN_INTERVALS + "test_large_releases_solve_and_compare_a_share_of_their_leaves",),
    ),
    Fault(
        "intervals of blocks take true blocks to be as even as released ones",
        "jobs/pipeline/release/intervals.py",
        "shares = shares if key.geolevel == leaf else ONE_SHARE",
        "shares = ONE_SHARE",
        (RUN_INTERVALS + "test_ninety_percent_intervals_cover_ninety_percent_by_class",),
    ),
    Fault(
        "a comparison takes a district of official files for a county",
        "jobs/analysis/compare/published.py",
        "if length is None or length.codes is None:",
        "if length is None or length.codes:",
        ("tests/pipeline/local/test_compare.py::test_official_files_have_rows_of_other_geolevels",),
    ),
    Fault(
        "a comparison adds up microdata of two editions",
        "jobs/analysis/compare/published.py",
        "if len(editions) > 1:",
        "if len(editions) > 2:",
        ("tests/pipeline/local/test_compare.py::test_microdata_of_another_vintage_are_refused",),
    ),
    Fault(
        "files of a state are joined without comparing their records",
        "jobs/pipeline/input/published.py",
        "    if want == got:\n        return\n",
        "    if len(want) == len(got):\n        return\n",
        (
            "tests/unit/jobs/pipeline/confidential/read/test_pl94.py::test_faults_name_file_and_line",
        ),
    ),
    Fault(
        "a spreadsheet program computes a text of a workbook",
        "jobs/pipeline/storage/xlsx.py",
        '"strings_to_formulas": False',
        '"strings_to_formulas": True',
        ("tests/pipeline/local/test_spreadsheet.py::test_texts_stay_texts",),
    ),
    Fault(
        "an export has the ends of intervals in the wrong order",
        "jobs/analysis/export.py",
        "(values, ends.lower, ends.upper)",
        "(values, ends.upper, ends.lower)",
        (EXPORT_TEST + "test_wide_table_has_the_estimates_and_intervals_of_the_release",),
    ),
    Fault(
        "an export has geocodes of the spine in place of census geocodes",
        "jobs/analysis/export.py",
        "some.shown, some.names",
        "pa.array(some.codes), some.names",
        (EXPORT_TEST + "test_an_own_layout_needs_no_code",),
    ),
    Fault(
        "a run that could not be finished is imported",
        "jobs/analysis/import_nmf.py",
        "        require_runnable(resolved)\n",
        "",
        (RUNNABLE_TEST + "test_noisy_answers_of_others_that_could_not_be_solved_are_not_imported",),
    ),
    Fault(
        "sessions ask nobody for a secret",
        "jobs/pipeline/config/protection.py",
        "if allow_open and (is_off or not is_local(master)):",
        "if is_off or not is_local(master):",
        (
            "tests/unit/jobs/pipeline/config/test_protection.py::test_every_session_is_started_protected",
        ),
    ),
    Fault(
        "a published geolevel is measured again",
        STAGE,
        "if not is_published(dataset) and (",
        "if (",
        (STAGE_TEST + "test_a_published_geolevel_is_never_measured_again",),
    ),
    Fault(
        "geounits are numbered anew in every task",
        STAGE,
        "rows = batch.first + np.flatnonzero",
        "return np.flatnonzero",
        (MEASURE_TEST + "test_noise_does_not_depend_on_the_range_of_the_task",),
    ),
    Fault(
        "an error after a draw spends nothing",
        MEASURE,
        "if not streams.is_used:",
        "if True:",
        (MEASURE_TEST + "test_an_error_after_a_draw_spends_the_part_and_shows_no_value",),
    ),
    Fault(
        "a part that failed after its draw is drawn again",
        DRAWS,
        "            draws.fail(part, attempt)\n            raise",
        "            raise",
        (SURVEYS + "test_a_part_that_failed_after_its_draw_is_spent",),
    ),
    Fault(
        "only children are measured once more",
        STAGE,
        'measured = table.filter(pc.invert(table.column("only_child")))',
        "measured = table",
        (STAGE_TEST + "test_every_query_of_every_measured_geounit_is_published_with_noise",),
    ),
    Fault(
        "geounits have the noise of other chains",
        STAGE,
        "plan.noise(level.index, plan.level(end).index)",
        "plan.noise(level.index, level.index)",
        (STAGE_TEST + "test_the_published_law_is_the_one_that_was_paid_for",),
    ),
    # --- the continuous stage ---
    Fault(
        "the certificate forgets gradients of positive counts",
        OPTIMALITY,
        "    gap = float((x * conditions.gradient).sum())",
        "    gap = 0.0",
        (SOLVER_UNIT + "test_the_certificate_sees_each_kind_of_fault",),
    ),
    Fault(
        "outside rows do not reach the gradient",
        STRUCTURE,
        "        if self.outside.shape[1]:\n            y +=",
        "        if False:\n            y +=",
        (SOLVER_UNIT + "test_arranged_arrays_are_those_of_the_definition",),
    ),
    Fault(
        "penalties of equalities are never corrected",
        KERNELS,
        "_ROUNDS = 10",
        "_ROUNDS = 2",
        ("tests/unit/solvers/least_squares/test_kernels.py::test_iterations_are_those_in_arrays",),
    ),
    Fault(
        "contradictions are taken for a limit",
        SOLVER,
        "        if reason:",
        "        if False:",
        (SOLVER_UNIT + "test_contradictions_are_recognized_and_explained",),
    ),
    # --- estimates ---
    Fault(
        "too little of the parent's covariance goes down",
        TREE_PASS,
        "subtree + subtree @ change_of_information @ subtree",
        "subtree + 0.9 * subtree @ change_of_information @ subtree",
        (ESTIMATION + "test_every_kind_of_strategy_with_every_kind_of_invariant",),
    ),
    Fault(
        "what invariants fix is left out",
        TREE_PASS,
        "values.append(known + _apply(covariance, numbers, moved))",
        "values.append(_apply(covariance, numbers, moved))",
        (ESTIMATION + "test_every_kind_of_strategy_with_every_kind_of_invariant",),
    ),
    Fault(
        "a family of leaves has the variance of one",
        TREE_PASS,
        "np.where(measured[:, None], distinct, 1)",
        "np.ones_like(distinct)",
        (ESTIMATION + "test_summed_leaves_give_the_same_families",),
    ),
    Fault(
        "estimates do not know which types a geounit lacks",
        "jobs/pipeline/release/level.py",
        "            has_type &= found[of_geounit.reshape(-1)]\n",
        "",
        (LACKED + "[limits0-given0-empty0-exact0]", LACKED + "[limits2-given2-empty2-exact0]"),
    ),
    Fault(
        "tasks forget the covariances of leaves that lack different types",
        "jobs/pipeline/release/level.py",
        "0 if self.terms.types is None else matrices",
        "0",
        (
            "tests/unit/jobs/pipeline/release/test_estimate.py::test_a_task_has_room_for_a_"
            "covariance_of_every_leaf_if_each_may_lack_other_types",
        ),
    ),
    Fault(
        "estimates do not know structural zeros",
        "jobs/pipeline/release/level.py",
        "plan.limits.possible_answers(types)[None]",
        "np.ones((1, types.size), np.bool_)",
        (LACKED + "[limits4-given4-empty4-exact0]",),
    ),
    Fault(
        "intervals assume that a facility may be empty",
        "jobs/pipeline/release/public_bounds.py",
        "least, most = bounds_of_answers(limits.leaves, *ends)",
        "most = bounds_of_answers(limits.leaves, *ends)[1]",
        (
            FACILITY_RUNS + "test_positive_intervals_of_estimates_lie_within_public_bounds",
            FACILITY_RUNS + "test_intervals_of_released_counts_lie_within_public_bounds",
        ),
    ),
    Fault(
        "bounds of rows are not known to intervals",
        "invariants/linear.py",
        "return int(answers[0]) if is_whole else None",
        "return None",
        (FACILITY_RUNS + "test_positive_intervals_of_estimates_lie_within_public_bounds",),
    ),
    Fault(
        "an interval is moved to the least count, not searched above it",
        INTERVALS,
        "positive_intervals(estimates - least, errors, factor)",
        "positive_intervals(estimates, errors, factor)",
        (INTERVALS_UNIT + "test_public_bounds_of_a_truth_leave_its_coverage[3.0]",),
    ),
    Fault(
        "where types are empty, invariants are forgotten",
        TREE_PASS,
        "covariance[rows] = _inverse(precision[rows], free)",
        "covariance[rows] = _inverse(precision[rows], space)",
        (LACKED + "[limits0-given0-empty0-exact1]",),
    ),
    Fault(
        "queries that differ in publicly empty cells alone lose their weight",
        TARGETS,
        "if every or min(",
        "if min(",
        (ESTIMATION + "test_targets_weigh_queries_that_differ_in_empty_cells_alone[known0]",),
    ),
    Fault(
        "rounding in place of information gets a huge weight",
        TARGETS,
        "_ROUNDING * scale.max()",
        "0.0",
        (ESTIMATION + "test_answers_that_zeros_and_invariants_fix_together_get_no_large_weight",),
    ),
    Fault(
        "an area forgets what its geounit tells",
        AREA,
        "covariance = spread - reach @ precision @ reach.T",
        "covariance = spread",
        (ESTIMATION + "test_any_set_of_leaves_has_the_dense_estimate_and_variance",),
    ),
    Fault(
        "all components weigh the same in the fit of targets",
        TARGETS,
        "share, size = np.sqrt(width), part.shape[1]",
        "share, size = 1.0, part.shape[1]",
        (ESTIMATION + "test_targets_hold_the_subtree[False]",),
    ),
    Fault(
        "posterior means forget the prior",
        POSTERIOR,
        "                    weights *= self.mass[index]\n",
        "",
        (POSTERIOR_UNIT + "test_posterior_means_come_near_those_of_the_true_prior",),
    ),
    Fault(
        "the prior is not learned",
        POSTERIOR,
        "for _ in range(_ITERATIONS):",
        "for _ in range(0):",
        (POSTERIOR_UNIT + "test_means_are_kept_on_average",),
    ),
    Fault(
        "large counts may be few and far between",
        POSTERIOR,
        "step = max(1.0, np.sqrt(variance))",
        "step = 100.0 * max(1.0, np.sqrt(variance))",
        (POSTERIOR_UNIT + "test_large_counts_stay_where_they_were_measured",),
    ),
    Fault(
        "counts beyond the prior are fitted to its largest",
        POSTERIOR,
        "rows = np.flatnonzero((bins == index) & (flat <= _largest(self.variance)))",
        "rows = np.flatnonzero(bins == index)",
        (POSTERIOR_UNIT + "test_large_counts_stay_where_they_were_measured",),
    ),
    Fault(
        "the bound of the largest error forgets what limits cost",
        LARGEST,
        " - weights[is_limit].sum()",
        "",
        (LARGEST_UNIT + "test_limits_are_kept_and_what_they_cost_is_certified",),
    ),
    Fault(
        "tangents of the largest error have a wrong slope",
        LARGEST,
        "problem.per_rho / ratio**2",
        "problem.per_rho / ratio",
        (LARGEST_UNIT + "test_no_point_of_a_grid_is_better",),
    ),
    Fault(
        "a group is as large in every geounit as in all together",
        GROUPS,
        "shared = whole / geounits[level]",
        "shared = whole",
        (GROUPS_UNIT + "test_plan_prints_errors_of_groups",),
    ),
    Fault(
        "a proposed schema tells how old the oldest person is",
        PROPOSALS,
        "levels = tuple(dict.fromkeys(label.values()))",
        "levels = tuple(label[age] for age in range(0, column.most, years))",
        (PROPOSALS_UNIT + "test_ages_do_not_tell_how_old_anybody_is",),
    ),
    Fault(
        "a proposed run file counts the codes of columns that are left out",
        PROPOSALS,
        'return f"has more than {_FEW_CODES} whole numbers; ',
        'return f"has {len(column.codes)} whole numbers; ',
        (PROPOSALS_UNIT + "test_why_a_column_is_left_out",),
    ),
    Fault(
        "a file of entities may lack blocks, which get the marks of others",
        SPINE_FILES,
        "    if len(absent):\n",
        "    if len(absent) > 1:\n",
        (SPINE_FILES_UNIT + "test_every_leaf_is_named_once",),
    ),
    Fault(
        "a file of entities may name blocks that nobody listed",
        SPINE_FILES,
        "unknown = np.flatnonzero(leaves[at] != of_batch)",
        "unknown = np.flatnonzero(leaves[at] > of_batch)",
        (SPINE_FILES_UNIT + "test_every_leaf_is_named_once",),
    ),
    Fault(
        "blocks have the marks that stand in the same row of another order",
        SPINE_FILES,
        "np.concatenate(parts)[order] for",
        "np.concatenate(parts) for",
        (SPINE_FILES_UNIT + "test_columns_come_in_the_order_of_the_leaves",),
    ),
    Fault(
        "blocks of the spine have the geocodes of others in the census",
        SPINE_FILES,
        "Census(lattice, leaves[order])",
        "Census(lattice, leaves)",
        (SPINE_FILES_UNIT + "test_leaves_have_both_geocodes",),
    ),
    Fault(
        "a range of codes marks codes of other lengths",
        SPINE_FILES,
        "of_length = np.char.str_len(texts) == len(low)",
        "of_length = np.char.str_len(texts) > 0",
        (SPINE_FILES_UNIT + "test_marks_are_texts_or_ranges_of_them",),
    ),
    Fault(
        "groups of geounits may be larger than the largest",
        RESPINE,
        "alive & (union <= limit), 1)",
        "alive & (union <= limit + 1), 1)",
        (RESPINE_LAWS + "test_groups_keep_their_limits",),
    ),
    Fault(
        "a split leaves the marked blocks where they were",
        RESPINE,
        "made = _insert(made, step, marked.astype(np.int64))",
        "made = _insert(made, step, 0 * marked)",
        (RESPINE_UNIT + "test_split_makes_halves_below_the_geounit",),
    ),
    Fault(
        "an off-spine entity is never the geounit less the rest of it",
        OFFSPINE,
        "return np.minimum(inside, 1 + outside), np.minimum(outside, 1 + inside)",
        "return inside, np.minimum(outside, 1 + inside)",
        (OFFSPINE_ORACLE + "test_no_sum_with_signs_is_shorter",),
    ),
    # --- means ---
    Fault(
        "a changed value moves a sum by its radius",
        MEANS,
        "return self.radius * (2 if neighbors is Neighbors.BOUNDED else 1)",
        "return self.radius",
        (MEANS_UNIT + "test_steps_have_the_constants_of_the_paper[10-3-first3-second3]",),
    ),
    Fault(
        "noise of a sum is charged for its sensitivity, not squared",
        MEANS,
        "power = 1 if mechanism.norms[definition] is Norm.L1 else 2",
        "power = 1",
        (MEANS_UNIT + "test_no_pair_of_neighbors_costs_more_than_the_steps[unbounded]",),
    ),
    Fault(
        "large values are not clipped",
        CLIPPED_SUMS,
        "np.clip(data.values, lower[data.strata], upper[data.strata])",
        "np.maximum(data.values, lower[data.strata])",
        (MEANS_UNIT + "test_sums_are_exact_beneath_their_noise",),
    ),
    Fault(
        "values are centered on their least, so one record moves a sum by the whole interval",
        CLIPPED_SUMS,
        " - center[data.strata]",
        " - lower[data.strata]",
        (MEANS_UNIT + "test_sums_are_exact_beneath_their_noise",),
    ),
    Fault(
        "every step of a mean is paid as the last",
        CLIPPED_SUMS,
        "clipping.noise(Definition.ZCDP, cost, strata.neighbors)",
        "clipping.noise(Definition.ZCDP, steps.costs[-1], strata.neighbors)",
        (MEANS_UNIT + "test_steps_have_the_constants_of_the_paper[10-3-first3-second3]",),
    ),
    Fault(
        "each step before the last takes a quarter",
        MEANS,
        "before = rho / (4 * (n_steps - 1))",
        "before = rho / 4",
        (SURVEY_COSTS_UNIT + "test_sums_come_back_and_give_the_same_means[unbounded]",),
    ),
    Fault(
        "noisy bounds can make a later step fail",
        MEANS,
        "limit = partial(Clipping.limited, middle=middle) if self.sums else Clipping.around",
        "limit = Clipping.around",
        (MEANS_UNIT + "test_a_later_step_is_refused_before_the_first_or_never",),
    ),
    Fault(
        "only the first step of a mean is checked before the grant is claimed",
        MEANS,
        "for clipping in [widest] if number else first:",
        "for clipping in first:",
        (MEANS_UNIT + "test_a_later_step_is_refused_before_the_first_or_never",),
    ),
    # --- synthesis ---
    Fault(
        "AIM's selection is paid for one table where scores weigh three",
        ADAPTIVE,
        "rounds.order * selector.moved",
        "selector.moved",
        (
            ADAPTIVE_UNIT
            + "test_a_selection_is_paid_for_the_most_that_a_neighbor_moves_a_score[aim-unbounded]",
        ),
    ),
    Fault(
        "a changed record moves a score by one",
        ADAPTIVE,
        "return 2 if self.neighbors is Neighbors.BOUNDED else 1",
        "return 1",
        (
            ADAPTIVE_UNIT
            + "test_a_selection_is_paid_for_the_most_that_a_neighbor_moves_a_score[mst-bounded]",
        ),
    ),
    Fault(
        "the best candidate is selected, without a random bit",
        ADAPTIVE,
        "return selection.choose(scores, self.streams.bits(position))",
        "return max(range(len(scores)), key=scores.__getitem__)",
        (ADAPTIVE_UNIT + "test_selections_depend_on_their_random_bits[aim]",),
    ),
    Fault(
        "selections read bits that everybody knows",
        ADAPTIVE,
        "return selection.choose(scores, self.streams.bits(position))",
        "return selection.choose(scores, Streams(type(self.streams._key)(bytes(32))).bits(position))",
        (ADAPTIVE_UNIT + "test_selections_depend_on_their_random_bits[mst]",),
    ),
    Fault(
        "a set drawn again reads the bits of the first draw",
        ADAPTIVE,
        "position = (_SELECTION, number, attempt)",
        "position = (_SELECTION, number, 0)",
        (ADAPTIVE_UNIT + "test_large_models_are_no_candidates",),
    ),
    Fault(
        "MST forgets what its selections cost",
        ADAPTIVE,
        "rest = rho - rho / 3 - (d - 1) * selection.rho",
        "rest = rho - rho / 3",
        (ADAPTIVE_UNIT + "test_the_ledger_sums_to_rho_and_every_entry_costs_what_it_says",),
    ),
    Fault(
        "AIM forgets what its selections cost",
        ADAPTIVE,
        "left -= selection.rho + cost",
        "left -= cost",
        (ADAPTIVE_UNIT + "test_the_ledger_sums_to_rho_and_every_entry_costs_what_it_says",),
    ),
    Fault(
        "which sets are candidates depends on the true number of records",
        ADAPTIVE,
        "noise >= 2 * max(1, len(drawn.codes))",
        "noise >= 2 * max(1, len(records.codes))",
        (
            ADAPTIVE_UNIT
            + "test_a_selection_is_paid_for_the_most_that_a_neighbor_moves_a_score[aim-unbounded]",
        ),
    ),
    Fault(
        "a manifest tells how many draws a selection took",
        ADAPTIVE,
        "    left = dict(scores)\n",
        "    left = scores\n",
        (ADAPTIVE_UNIT + "test_what_is_said_of_a_selection_does_not_tell_how_many_draws_it_took",),
    ),
    Fault(
        "levels are merged by true counts",
        MARGINALS,
        "    merging = merge_rare(one_way)\n",
        "    merging = merge_rare([replace(a, answers=records.answer(a.query)) for a in one_way])\n",
        (SYNTHESIS_UNIT + "test_levels_are_merged_by_published_counts_alone",),
    ),
    Fault(
        "MST merges levels by true counts",
        ADAPTIVE,
        "    merging = merge_rare(one_way)\n",
        "    from dataclasses import replace\n\n    merging = merge_rare([replace(a, answers=records.answer(a.query)) for a in one_way])\n",
        (SYNTHESIS_UNIT + "test_levels_are_merged_by_published_counts_alone",),
    ),
    Fault(
        "what the second look takes is not kept back",
        MARGINALS,
        "measure_exactly(rest - later)",
        "measure_exactly(rest)",
        (SYNTHESIS_UNIT + "test_every_pair_of_neighbors_costs_at_most_rho[2-unbounded]",),
    ),
    Fault(
        "strata get all of rho beside what measures everybody",
        MARGINALS,
        "measure_exactly(rho - population.rho)",
        "measure_exactly(rho)",
        (STRATA_UNIT + "test_every_pair_of_neighbors_costs_at_most_rho[unbounded]",),
    ),
    Fault(
        "the noise of a stratum depends on its true number of records",
        MARGINALS,
        "float(share) * max(1, counted)",
        "float(len(part.codes))",
        (STRATA_UNIT + "test_the_noise_of_strata_does_not_depend_on_their_true_sizes",),
    ),
    Fault(
        "tables of records are paid as if records were only added",
        MARGINALS,
        "charged = sensitivity(query, self.neighbors, noise.norms[Definition.ZCDP])",
        "charged = sensitivity(query, Neighbors.UNBOUNDED, noise.norms[Definition.ZCDP])",
        (ADAPTIVE_UNIT + "test_the_ledger_sums_to_rho_and_every_entry_costs_what_it_says",),
    ),
    Fault(
        "tables of records are published without noise",
        MARGINALS,
        "return NoisyAnswer(query, mechanism, rho, answers[0])",
        "return NoisyAnswer(query, mechanism, rho, self.records.answer(query))",
        (SYNTHESIS_UNIT + "test_levels_are_merged_by_published_counts_alone",),
    ),
    Fault(
        "in strata the one-way marginals of a selection cost all that is left",
        ADAPTIVE,
        "alone = rho / 2 if chosen else rho",
        "alone = rho",
        (
            STRATA_UNIT
            + "test_strata_of_measured_sizes_and_selected_marginals_cost_at_most_rho[unbounded]",
        ),
    ),
    Fault(
        "all strata draw the same noise",
        MARGINALS,
        "(_FIRST_STRATUM + stratum, i)",
        "(_FIRST_STRATUM, i)",
        (COUNTER_BLOCKS + "test_no_survey_draws_from_a_stream_twice[strata]",),
    ),
    Fault(
        "strata of selected marginals are not shrunk",
        "das/synthesis/strata.py",
        "one.shrunk(variances[each]) / one.size",
        "one.noisy / one.size",
        (
            STRATA_UNIT + "test_strata_of_selected_marginals_keep_what_is_their_own_"
            "and_shrink_what_is_noise[True]",
        ),
    ),
    Fault(
        "a mixture expects the same in all strata",
        "das/synthesis/mixture.py",
        "chances *= self.levels[i][:, level]",
        "chances *= 1",
        (SYNTHESIS_UNIT + "test_marginals_given_levels_are_those_of_the_joint_distribution_there",),
    ),
    Fault(
        "a message returns what its receiver said",
        "das/synthesis/graphical.py",
        "self._lifted(downward - upward[k], k, k)",
        "self._lifted(downward, k, k)",
        (
            "tests/unit/das/synthesis/test_tree.py::test_drawn_records_have_the_counts_of_every_clique",
        ),
    ),
    # --- the exponential mechanism ---
    Fault(
        "scores count as monotonic",
        EXPONENTIAL,
        "return self.epsilon / (2 * self.sensitivity)",
        "return self.epsilon / self.sensitivity",
        (EXPONENTIAL_UNIT + "test_neighbors_are_as_alike_as_the_cost_says",),
    ),
    Fault(
        "a selection costs half of what its range does",
        EXPONENTIAL,
        "return self.epsilon**2 / 8",
        "return self.epsilon**2 / 16",
        (EXPONENTIAL_UNIT + "test_neighbors_are_as_alike_as_the_cost_says",),
    ),
    Fault(
        "a selection is decided before its bits decide it",
        EXPONENTIAL,
        "if candidate < len(scores) and beyond <= low[candidate]:",
        "if candidate < len(scores):",
        (
            EXPONENTIAL_UNIT
            + "test_a_uniform_number_next_to_a_boundary_is_decided_on_the_right_side",
        ),
    ),
    Fault(
        "the further bits of a selection are zeros",
        EXPONENTIAL,
        "uniform, n_bits = uniform << 32 | bits.bits(32), n_bits + 32",
        "uniform, n_bits = uniform << 32 | 0 * bits.bits(32), n_bits + 32",
        (
            EXPONENTIAL_UNIT
            + "test_a_uniform_number_next_to_a_boundary_is_decided_on_the_right_side",
        ),
    ),
    # --- noise given what is exact ---
    Fault(
        "limits on counts cost nothing",
        CONDITIONING,
        "GAMMA = Fraction(1)",
        "GAMMA = Fraction(0)",
        (
            TABLE_PLAN_UNIT
            + "test_no_two_data_sets_are_told_apart_by_more_than_is_charged[shape2-exact2-1]",
        ),
    ),
    Fault(
        "the smallest gamma forgets tables whose records leave a cell",
        CONDITIONING,
        "(1 - inverse - last)",
        "(1 - inverse)",
        (
            TABLE_PLAN_UNIT
            + "test_the_smallest_gamma_is_the_worst_of_all_pairs_of_tables[cost0-shape1-exact1]",
        ),
    ),
    Fault(
        "data sets several records apart cost one record",
        CONDITIONING,
        "return Pure((1 + gamma) * of_group(cost, records).epsilon)",
        "return Pure((1 + gamma) * cost.epsilon)",
        (TABLE_PLAN_UNIT + "test_the_cost_that_is_proved_is_the_share[4]",),
    ),
    Fault(
        "conditioned noise keeps a promise of zCDP",
        CONDITIONING,
        "    if not isinstance(cost, Pure):",
        "    if False:",
        (CONDITIONAL_ORACLE + "test_zcdp_and_other_gammas_are_refused",),
    ),
    Fault(
        "noise that is conditioned may cost all that conditioning may",
        CONDITIONING,
        "return Pure(target.epsilon / conditioned(Pure(Fraction(1)), records).epsilon)",
        "return target",
        (CONDITIONAL_ORACLE + "test_a_target_is_met_at_the_distance_of_the_nearest",),
    ),
    Fault(
        "a table is drawn from the first 64 bits",
        CONDITIONAL,
        "low, high = Decimal(number) / 2**length, Decimal(number + 1) / 2**length",
        "low = high = Decimal(number) / 2**length",
        (CONDITIONAL_ORACLE + "test_a_number_next_to_a_threshold_is_decided_by_more_digits",),
    ),
    Fault(
        "noise of a table that is kept never takes away",
        CONDITIONAL,
        "weights.powers[abs(s - x)]",
        "weights.powers[max(s - x, 0)]",
        (CONDITIONAL_ORACLE + "test_a_number_next_to_a_threshold_is_decided_by_more_digits",),
    ),
    Fault(
        "tables of three attributes are compared two records apart",
        TABLE_PLAN,
        "return max(2, 1 << (max(least) - 1))",
        "return 2",
        (TABLE_PLAN_UNIT + "test_there_are_data_sets_within_k_records[shape3-exact3-4-4]",),
    ),
    # --- inference ---
    Fault(
        "tables at a bound are not drawn",
        CHAIN,
        "(tables @ self.least.T >= self.least_of)",
        "(tables @ self.least.T > self.least_of)",
        (
            CHAIN_ORACLE
            + "test_small_tables_have_the_exact_law[truth-DiscreteLaplace(scale=Fraction(2, 1))-DiscreteLaplace(scale=Fraction(5, 2))]",
        ),
    ),
    Fault(
        "answers drawn near the noisy one count twice",
        LIKELIHOOD,
        "log_weights = log_noise + log_model - np.logaddexp(log_noise, log_model)",
        "log_weights = log_noise",
        (LIKELIHOOD_ORACLE + "test_weighted_answers_have_the_law_given_the_noisy_one[1/3-30.0]",),
    ),
    Fault(
        "a posterior keeps what fits the last answer",
        "das/inference/rejection.py",
        "log_keep += distribution.log_ratio(",
        "log_keep = distribution.log_ratio(",
        ("tests/unit/das/inference/test_rejection_oracle.py::test_two_answers_are_both_used",),
    ),
    Fault(
        "a region of two parameters is as wide as an interval of one",
        "das/inference/regions.py",
        "chdtri(len(chosen), 1.0 - confidence)",
        "chdtri(1, 1.0 - confidence)",
        (
            "tests/unit/das/inference/test_regions.py::test_regions_hold_the_truth_as_often_as_they_say[(2, 0)]",
        ),
    ),
    # --- surveys ---
    Fault(
        "a part may cost more than was planned",
        "jobs/survey/confidential/measure.py",
        "if part_cost(plan, answers) > plan.costs[part.name]:",
        "if False:",
        (SURVEY_PARTS_UNIT + "test_what_costs_more_than_was_planned_is_not_published",),
    ),
    Fault(
        "missing values are averaged as zeros",
        SURVEY_FILES,
        "values, strata = values[~numbers.missing], strata[~numbers.missing]",
        "pass",
        (
            SURVEY_FILES_UNIT
            + "test_missing_numbers_are_left_out_or_count_as_stated[exclude-values0]",
        ),
    ),
    Fault(
        "the number of records is not compared with what is stated",
        SURVEY_FILES,
        "n_records != stated:",
        "False:",
        (SURVEY_FILES_UNIT + "test_a_number_of_records_that_is_public_is_the_true_one",),
    ),
    Fault(
        "microdata get the whole budget",
        SURVEY_PLAN,
        "costs[SYNTHESIS] = self.budget.total * self.config.synthesis.share",
        "costs[SYNTHESIS] = self.budget.total",
        (SURVEY_PLAN_UNIT + "test_costs_are_shares_of_the_budget_exactly",),
    ),
    Fault(
        "parts may spend more than was granted",
        "jobs/survey/checks.py",
        "    if total != 1:",
        "    if total < 1:",
        (SURVEYS + "test_run_files_that_cannot_be_used[changes0-do not sum to 1]",),
    ),
    Fault(
        "a plan with another budget is the same plan",
        SURVEY_PLAN,
        '"privacy": {"account"},',
        '"privacy": True,',
        (SURVEY_PLAN_UNIT + "test_the_digest_holds_what_is_measured_and_nothing_else",),
    ),
    Fault(
        "a changed record of a survey costs what an added one does",
        SURVEY_PLAN,
        "changed = self.config.privacy, changed_record_bound(self.budget)",
        "changed = self.config.privacy, self.budget.total",
        (SURVEY_PLAN_UNIT + "test_a_claim_states_what_a_changed_record_costs",),
    ),
    Fault(
        "the account is not told which marginals of a survey are exact",
        SURVEY_PLAN,
        "self.budget, run, out, changed, exact\n",
        "self.budget, run, out, changed, ()\n",
        (SURVEY_PLAN_UNIT + "test_a_claim_names_the_marginals_that_are_exact",),
    ),
    Fault(
        "strata cost what the cheapest does",
        SURVEY_COSTS,
        "largest = [max(one.cost(definition, neighbors) for one in sums) for sums in history]",
        "largest = [min(one.cost(definition, neighbors) for one in sums) for sums in history]",
        (SURVEY_COSTS_UNIT + "test_the_dearest_stratum_counts",),
    ),
    Fault(
        "a selection may count on less than a record moves a score",
        SURVEY_COSTS,
        "            if selection.mechanism.sensitivity < least:",
        "            if False:",
        (SURVEY_COSTS_UNIT + "test_strata_and_selections_cost_what_is_stated",),
    ),
    Fault(
        "residuals with less noise than was paid for pass",
        SURVEY_COSTS,
        "    if together * (1 - _CLOSE) > stated:",
        "    if False:",
        (SURVEY_COSTS_UNIT + "test_less_noise_than_is_paid_for_is_found",),
    ),
    Fault(
        "one-way counts with less noise than was paid for pass",
        SURVEY_COSTS,
        "        if cost != answer.rho:",
        "        if cost < answer.rho:",
        (SURVEY_COSTS_UNIT + "test_less_noise_than_is_paid_for_is_found",),
    ),
    Fault(
        "what is measured in strata costs nothing",
        SURVEY_COSTS,
        "(_check_alone if is_selected else _cost_together)(stratum, neighbors)",
        "_ = stratum",
        (SURVEY_COSTS_UNIT + "test_strata_and_selections_cost_what_is_stated",),
    ),
    Fault(
        "verifying a survey believes the costs that its ledger states",
        "jobs/survey/manifest.py",
        "if cost != ledger.costs.get(part) or cost > planned.costs[part]:",
        "if False:",
        (SURVEY_PARTS_UNIT + "test_sums_with_less_noise_than_the_ledger_states_are_found",),
    ),
    # --- invariants ---
    Fault(
        "what must lie within a set of types is what its own least are",
        IMPLIED,
        "return np.asarray(np.maximum(inside, leaves.low[:, None] - outside).sum(0), np.int64)",
        "return np.asarray(inside.sum(0), np.int64)",
        (IMPLIED_UNIT + "test_bounds_of_single_types_are_the_published_ones[one type]",),
    ),
    Fault(
        "limits of types forget what the others need",
        LEAVES,
        "np.minimum(most, leaves.high[:, None] - (fewest[:, None] - least))",
        "np.minimum(most, leaves.high[:, None])",
        (LEAVES_UNIT + "test_limits_become_those_attained",),
    ),
    Fault(
        "leaves with a total are added up like boxes",
        LEAVES,
        "box = (tight.low == fewest) & (tight.high == tight.most.sum(1))",
        "box = (tight.low == fewest) | (tight.high == tight.most.sum(1))",
        (
            "tests/unit/invariants/test_implied_oracle.py::test_counts_can_be_assigned_iff_a_dealing_exists",
        ),
    ),
    Fault(
        "nobody checks upper bounds between products",
        BETWEEN,
        "out |= records > self.most.answer(others, n_geounits)",
        "out |= False",
        (BETWEEN_UNIT + "test_counts_can_be_assigned_iff_some_split_keeps_the_ties[plain]",),
    ),
    Fault(
        "bounds between products may contradict each other",
        BETWEEN,
        "            if not (high - low).is_nonnegative:",
        "            if False:",
        (
            BETWEEN_UNIT
            + "test_ties_that_might_contradict_each_other_are_refused[entries2-may have a lower bound above the upper one]",
        ),
    ),
    Fault(
        "upper bounds demand nothing of the products before",
        BETWEEN,
        "            if all(highs):",
        "            if False:",
        (BETWEEN_UNIT + "test_a_total_that_is_bounded_from_above_needs_units",),
    ),
    Fault(
        "types that are not counted hold nobody",
        FACILITIES,
        "most = np.where(self.is_counted, counts * self.most, MANY)",
        "most = counts * self.most",
        (INVARIANTS_UNIT + "test_facilities",),
    ),
    Fault(
        "invariants that cross are accepted",
        EXACT,
        "if shared and not is_refinement(fine, coarse):",
        "if False:",
        (EXACT_UNIT + "test_crossing_invariants_are_refused[first0-second0-sex and age]",),
    ),
    Fault(
        "an invariant holds at its own geolevel alone",
        EXACT,
        "tuple(spine[: list(spine).index(geolevel) + 1])",
        "(geolevel,)",
        (EXACT_UNIT + "test_an_invariant_also_holds_at_all_coarser_geolevels[1]",),
    ),
    Fault(
        "of many structural zeros the last count",
        "invariants/zeros.py",
        "            is_zero |= bits != 0",
        "            is_zero = bits != 0",
        ("tests/unit/invariants/test_zeros.py::test_more_boxes_than_bits_of_a_word",),
    ),
    # --- objectives ---
    Fault(
        "cells never leave their upper bound",
        BOUNDED,
        "leaves = ((side < 0) & (gradient < -force)) | ((side > 0) & (gradient > force))",
        "leaves = (side < 0) & (gradient < -force)",
        (OBJECTIVES_ORACLE + "test_bounds_on_both_sides_hold_with_the_right_gradients",),
    ),
    Fault(
        "equalities are penalties alone",
        BOUNDED,
        "        shift[left] += missing\n",
        "",
        (OBJECTIVES_ORACLE + "test_max_fit_is_a_linear_program_then_least_squares[0]",),
    ),
    Fault(
        "the sum of low answers is fitted to nothing",
        METHODS,
        "            adjoint[c] += of_sum[0] * answers[low].sum() * in_low\n",
        "",
        (OBJECTIVES_ORACLE + "test_a_root_node_is_a_table[0]",),
    ),
    Fault(
        "the largest deviation is least whatever the parent has",
        METHODS,
        "        fixed.append(np.tile(np.eye(k), C))\n        targets.append(problem.parent.astype(float))",
        "        pass",
        (OBJECTIVES_ORACLE + "test_max_fit_keeps_the_parent_and_is_the_least[2]",),
    ),
    Fault(
        "what holds above gives way with the parent",
        PENALTY,
        "coefficients @ (whole - parent)",
        "coefficients @ whole",
        (PENALTY_UNIT + "test_it_is_the_penalized_problem",),
    ),
    Fault(
        "nobody checks whether leaves can hold what they get",
        NODE_CHECK,
        "            if not can_be_assigned(below, persons):",
        "            if False:",
        (NODE_CHECK_UNIT + "test_types_of_persons_that_no_leaf_takes",),
    ),
    Fault(
        "a rounding that ignores leaves is taken whether it keeps them or not",
        "solvers/rounding/round.py",
        "    return counts if kept else None\n",
        "    return counts\n",
        (
            "tests/unit/solvers/rounding/test_round_oracle.py"
            "::test_leaves_that_cross_a_set_need_a_program_only_where_a_flow_without_them_breaks_them",
        ),
    ),
    # --- accounts ---
    Fault(
        "grants for added records count a changed one as much",
        ACCOUNT,
        "Budget(grant.changed_record, grant.budget.delta, Neighbors.BOUNDED, grant.budget.definition)",
        "Budget(one.budget.total, one.budget.delta, Neighbors.BOUNDED, one.budget.definition)",
        (
            ACCOUNT_UNIT
            + "test_grants_of_both_relations_add_up_to_what_a_changed_record_costs[store]",
        ),
    ),
    Fault(
        "grants of both relations are added up for added records",
        ACCOUNT,
        "is_stated = all(",
        "is_stated = any(",
        (
            ACCOUNT_UNIT
            + "test_grants_of_both_relations_add_up_to_what_a_changed_record_costs[store]",
        ),
    ),
    Fault(
        "grants are stated at the largest delta",
        BUDGET,
        "delta, neighbors = min(budget.delta for budget in budgets), budgets[0].neighbors",
        "delta, neighbors = max(budget.delta for budget in budgets), budgets[0].neighbors",
        (ACCOUNT_UNIT + "test_grants_of_several_deltas_are_stated_at_the_smallest",),
    ),
    Fault(
        "a record that is changed costs twice the rho of one that is added",
        BUDGET,
        "return group_total(budget.definition, budget.total, 2)",
        "return 2 * budget.total",
        (
            ACCOUNT_UNIT
            + "test_a_claim_without_the_cost_of_a_changed_record_counts_at_the_bound[disk-zcdp-8]",
        ),
    ),
    Fault(
        "a grant can be spent by every run",
        ACCOUNT,
        "        if grant.run != reservation.run:",
        "        if False:",
        (ACCOUNT_UNIT + "test_another_run_needs_another_grant[disk]",),
    ),
    Fault(
        "each product of a run may spend the whole limit of an account",
        ACCOUNT,
        "_limits_among(path, lines), [*spent, *new])",
        "_limits_among(path, lines), new[:1])",
        (ACCOUNT_UNIT + "test_products_of_a_run_fit_together_or_not_at_all[disk]",),
    ),
    Fault(
        "an identifier of households is taken for a place",
        "jobs/design/drafting/draft.py",
        "if listed is None and data.geography.is_sparse:",
        "if False:",
        ("tests/pipeline/local/test_init.py::test_a_household_is_never_taken_for_a_place",),
    ),
    Fault(
        "relations between attributes without a table are lost",
        "jobs/design/drafting/draft.py",
        "        strategy = with_queries(best.strategy, pairs, len(text.above), SHARE_OF_PAIRS)",
        "        strategy = best.strategy",
        (
            "tests/pipeline/local/test_init.py::test_records_keep_slopes_within_a_fifth_of_the_truth",
        ),
    ),
    Fault(
        "a full disk is not named where a workbook is written",
        "jobs/pipeline/storage/xlsx.py",
        "    except FileCreateError as error:  # stands for an OSError, but is none",
        "    except ZeroDivisionError as error:",
        ("tests/pipeline/local/test_spreadsheet.py::test_an_export_to_a_full_disk_leaves_nothing",),
    ),
    Fault(
        "others may read the levels of a drafted run file",
        "jobs/design/drafting/merge.py",
        "        copy.touch(OWNER_ONLY)  # levels",
        "        copy.touch()  # levels",
        ("tests/pipeline/local/test_init.py::test_a_second_file_joins_the_run",),
    ),
    Fault(
        "a record that is there twice is not found",
        "jobs/pipeline/confidential/read/records.py",
        "                    if text in seen:",
        "                    if False:",
        (
            "tests/pipeline/local/test_first_mistakes.py::test_a_record_that_is_there_twice_is_found",
        ),
    ),
    Fault(
        "a run may change the neighbors of its grant",
        ACCOUNT,
        "        if grant.budget != reservation.budget:",
        "        if one.budget.total != reservation.budget.total:",
        (ACCOUNT_UNIT + "test_the_same_run_may_not_change_its_budget[disk]",),
    ),
    Fault(
        "grants of earlier versions count a changed record as an added one",
        ACCOUNT,
        "            else changed_record_bound(budget),",
        "            else budget.total,",
        (
            ACCOUNT_UNIT
            + "test_a_claim_without_the_cost_of_a_changed_record_counts_at_the_bound[store-zcdp-8]",
        ),
    ),
    Fault(
        "a second account of the same data is not found",
        ACCOUNT,
        "if spent.input is not None and is_keyed(spent.input, digest):",
        "if False:",
        (ACCOUNT_UNIT + "test_a_second_account_for_the_same_data_is_refused",),
    ),
    Fault(
        "digests of confidential data have a key that everybody knows",
        ACCOUNT,
        "key = uuid.uuid4().bytes if key is None else key",
        "key = bytes(16) if key is None else key",
        (ACCOUNT_UNIT + "test_a_second_account_for_the_same_data_is_refused",),
    ),
    Fault(
        "any account beside an input is that of all",
        ACCOUNT,
        "if len(accounts) == 1 and accounts == around and all(paths == accounts for paths in near):",
        "if len(found) == 1:",
        (ACCOUNT_UNIT + "TestDefault::test_of_a_folder_with_accounts_of_its_files_must_be_named",),
    ),
    Fault(
        "a failed check tells where before the account knows",
        ACCOUNT,
        "        note_failed_check(path, reservation, error.where)\n        raise",
        "        raise",
        (ACCOUNT_UNIT + "test_failed_checks_are_kept_beside_the_claims[disk]",),
    ),
    # --- finalizing and verifying ---
    Fault(
        "a dataset that is not the one that was finalized passes",
        FINALIZING,
        "if not (dataset / MANIFEST).exists() or dataset_digest(dataset) != output.sha256:",
        "if not (dataset / MANIFEST).exists():",
        (FINALIZING_UNIT + "test_what_differs_from_the_manifest_is_found[dataset]",),
    ),
    Fault(
        "a file that is not the one that was finalized passes",
        FINALIZING,
        "if hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:",
        "if False:",
        (FINALIZING_UNIT + "test_what_differs_from_the_manifest_is_found[file]",),
    ),
    Fault(
        "what no manifest names may lie in a release",
        FINALIZING,
        "        if path not in named:",
        "        if False:",
        (FINALIZING_UNIT + "test_what_differs_from_the_manifest_is_found[stray file]",),
    ),
    Fault(
        "seeded noise passes for noise",
        FINALIZING,
        "if release.notice.exists() != manifest.not_for_release:",
        "if False:",
        (FINALIZING_UNIT + "test_what_differs_from_the_manifest_is_found[seeded]",),
    ),
    Fault(
        "files of datasets are not read again",
        FINALIZING,
        "        verify_files(dataset)\n",
        "        pass\n",
        (FINALIZING_UNIT + "test_what_differs_from_the_manifest_is_found[rows]",),
    ),
    Fault(
        "lists of a manifest may be cut short",
        FINALIZING,
        "if found is not None or len(stated) == len(again):",
        "if True:",
        (FINALIZING_UNIT + "test_the_field_that_differs_is_named[stated0-again0-parts]",),
    ),
    Fault(
        "fields of a manifest may be left out",
        FINALIZING,
        "for name in {**again, **stated}:",
        "for name in stated:",
        (FINALIZING_UNIT + "test_the_field_that_differs_is_named[stated1-again1-exact]",),
    ),
    Fault(
        "numbers of a manifest may be one percent off",
        FINALIZING,
        "_SAME = 1e-9",
        "_SAME = 1e-2",
        (FINALIZING_UNIT + "test_the_field_that_differs_is_named[stated2-again2-delta]",),
    ),
    Fault(
        "files of others are finalized with a release",
        FINALIZING,
        "if path not in known and journal_of(path) not in known:",
        "if False:",
        (FINALIZING_UNIT + "test_a_file_that_no_run_writes_is_not_finalized",),
    ),
    Fault(
        "a product need not be the one that the release states",
        VERIFYING,
        "    verify_manifest(resolved.release, stated, census_manifest_of(resolved, finalized))\n",
        "",
        (
            "tests/pipeline/local/test_finalizing.py::test_a_manifest_of_a_product_that_was_changed_is_found",
        ),
    ),
    Fault(
        "children need not sum to their parents",
        VERIFYING,
        "    wrong = first_difference(sums, expected)\n    if wrong is not None:",
        "    wrong = None\n    if wrong is not None:",
        (
            "tests/unit/jobs/pipeline/release/test_verify.py::test_the_parent_that_is_not_the_sum_is_named[0]",
        ),
    ),
    Fault(
        "one broken answer of an invariant passes beside good ones",
        VERIFYING,
        "wrong = (query.answer(counts) != answers).any(1)",
        "wrong = (query.answer(counts) != answers).all(1)",
        (LIMITS_UNIT + "test_one_broken_answer_of_an_invariant_is_found_beside_good_ones",),
    ),
    Fault(
        "measurements that the ledger does not name pass",
        VERIFYING,
        "if recorded.get(dataset) != dataset_digest(dataset):",
        "if False:",
        (LIMITS_UNIT + "test_measurements_that_the_ledger_does_not_name_are_refused",),
    ),
    Fault(
        "a ledger that does not cost what was granted passes",
        VERIFYING,
        "    ledger.spent().finalize()\n",
        "",
        (LIMITS_UNIT + "test_a_ledger_that_leaves_out_a_geolevel_is_refused",),
    ),
    Fault(
        "imported noise may be less than is stated",
        RESIDUALS,
        "least = min(float(chi2.cdf(lower, len(off))), float(chi2.sf(upper, len(off))))",
        "least = float(chi2.sf(upper, len(off)))",
        (RESIDUALS_UNIT + "test_noise_of_another_size_than_is_stated_is_refused[too little]",),
    ),
    Fault(
        "noise of children does not count in the difference to their parent",
        RESIDUALS,
        "            np.add.at(variances, row, np.array([one.variance() for one in of_children])[listed])\n",
        "",
        (RESIDUALS_UNIT + "test_differences_are_weighed_by_the_variances_of_parents_and_children",),
    ),
    # --- planned allocations ---
    Fault(
        "given shares of a planned cost are not the parts of that cost",
        "jobs/pipeline/config/workload.py",
        "noise=strategy.set_costs / parts)",
        "noise=strategy.set_costs / parts**2)",
        (
            "tests/unit/jobs/pipeline/config/test_workload.py"
            "::test_given_shares_are_parts_of_the_joint_cost_and_digests_without_them_stay"
            "[unbounded]",
        ),
    ),
    Fault(
        "a search pays for a change within a geounit as for a move",
        "jobs/design/planning/residual_sets.py",
        "<= _WORSE * known",
        "<= 9.0 * known",
        (
            "tests/unit/jobs/design/planning/test_allocation.py"
            "::test_a_planned_strategy_is_one_that_runs_take_at_the_cost_of_each_geolevel"
            "[own-total,sex,age,detailed]",
        ),
    ),
    Fault(
        "the bound of a planned allocation holds for cheaper pairs of neighbors alone",
        "das/tree/allocation.py",
        "self.largest_slope(-slopes / np.maximum(prices, _FREE)[firsts])",
        "self.largest_slope(-slopes / 2.0)",
        (
            "tests/unit/jobs/design/planning/test_allocation.py"
            "::test_a_planned_strategy_is_one_that_runs_take_at_the_cost_of_each_geolevel"
            "[own-total,sex,age,detailed]",
        ),
    ),
    # --- marginals of surveys ---
    Fault(
        "tables are changed where they are above zero",
        "das/workload/residual/nonnegative.py",
        "np.maximum(price - step * table.of(values), 0.0)",
        "price - step * table.of(values)",
        (
            "tests/unit/das/workload/residual/test_nonnegative.py"
            "::test_answers_are_the_nearest_with_no_negative_cell[plain-unbounded]",
        ),
    ),
    Fault(
        "pooled tables have equal weight",
        "das/workload/hdmm/marginals.py",
        "apply(answers / variance)",
        "apply(answers / measured[0][1])",
        (
            "tests/unit/das/workload/test_pure.py"
            "::test_pooled_tables_are_the_least_squares_estimate_with_its_covariances",
        ),
    ),
    Fault(
        "with bounded neighbors the public total is measured, so that less is spent on tables",
        "das/workload/pure.py",
        "if neighbors is Neighbors.BOUNDED and sets.any():",
        "if False:",
        (
            "tests/unit/das/workload/test_pure.py"
            "::test_the_public_total_is_not_measured_beside_tables",
        ),
    ),
    Fault(
        "tables under pure epsilon cost what they state, whatever their noise",
        SURVEY_COSTS,
        "_check_alone(answers.answers, privacy.neighbors, privacy.definition)",
        "pass",
        (SURVEY_COSTS_UNIT + "test_tables_under_pure_epsilon_with_less_noise_are_found",),
    ),
    Fault(
        "intervals of Laplace noise are those of normal noise",
        "das/tree/intervals.py",
        "if definition is Definition.PURE:",
        "if False:",
        (
            "tests/unit/das/tree/test_intervals.py::test_intervals_of_laplace_noise_cover_exactly_or_more",
        ),
    ),
    Fault(
        "counts of the table of integers are rounded one by one",
        SURVEY_RESULTS,
        "whole = (on_grid(np.cumsum(table)) + STEPS // 2) // STEPS",
        "whole = np.cumsum(np.rint(table).astype(np.int64))",
        (SURVEY_MARGINALS + "test_nonnegative_tables_agree_and_are_nearer_to_small_counts",),
    ),
    Fault(
        "variances of products ignore the residual answers of a single attribute",
        PRODUCTS,
        "(rows[:, 1:] ** 2).sum(1)",
        "(rows[:, 2:] ** 2).sum(1)",
        (
            PRODUCTS_ORACLE
            + "test_answers_and_covariances_are_those_of_generalized_least_squares[unbounded-True]",
        ),
    ),
    Fault(
        "two queries share noise of attributes that one of them sums out",
        PRODUCTS,
        "common = sorted({*left} & {*right})",
        "common = sorted({*left})",
        (
            PRODUCTS_ORACLE
            + "test_answers_and_covariances_are_those_of_generalized_least_squares[unbounded-False]",
        ),
    ),
    Fault(
        "queries that the measured rows do not determine are answered",
        PRODUCTS,
        "if np.abs(again - matrix).max() > _IN_ROW_SPACE * np.abs(matrix).max():",
        "if False:",
        (
            PRODUCTS_ORACLE
            + "test_queries_that_the_measurements_do_not_determine_are_refused[job-not determined by what was measured]",
        ),
    ),
    Fault(
        "planned marginals cost what they state, whatever their noise",
        SURVEY_COSTS,
        "        return _cost_together(answers.answers, neighbors)\n",
        "        return sum_rho(answers.answers)\n",
        (SURVEY_COSTS_UNIT + "test_planned_marginals_come_back_and_less_noise_is_found[bounded]",),
    ),
    Fault(
        "the public number of records has the noise of the measured one",
        SURVEY_RESULTS,
        "values[0], noise[0] = plan.config.data.n_records, 0.0",
        "values[0] = plan.config.data.n_records",
        (SURVEY_MARGINALS + "test_estimates_come_from_the_release_alone_and_agree_with_its_files",),
    ),
    Fault(
        "numbers of written marginals are not compared",
        SURVEY_RESULTS,
        "or not all(np.allclose(got, want, rtol=_SAME, atol=_SAME) for got, want in pairs)",
        "or not all(pairs)",
        (SURVEY_MARGINALS + "test_a_changed_number_does_not_follow_from_the_noisy_answers",),
    ),
    Fault(
        "a household costs as many times as it has persons",
        "das/privacy/budget.py",
        "return of_group(ZeroConcentrated(total), records).rho",
        "return total * records",
        (
            "tests/unit/jobs/pipeline/release/test_statements_oracle.py"
            "::test_a_household_costs_what_is_said",
        ),
    ),
    Fault(
        "the budget of a household is given to each of its persons",
        "jobs/pipeline/config/resolve.py",
        "budget = replace(budget, total=budget.total / unit)",
        "budget = replace(budget, total=budget.total)",
        (
            "tests/pipeline/local/test_accounting.py"
            "::test_the_loss_of_a_household_is_stated_everywhere[household-1/100-1]",
        ),
    ),
    Fault(
        "an array in another order than compiled for compiles again",
        "solvers/families/solve.py",
        "free &= targets[:, groups] > 0",
        "free = targets[:, groups] > 0",
        ("tests/pipeline/local/test_demo.py::test_the_files_it_names_are_there",),
    ),
    Fault(
        "regressions of another plan are taken",
        "jobs/pipeline/config/learned.py",
        "        if getattr(stated, key) != value:\n",
        "        if False:\n",
        (LEARNED + "test_other_plans_are_refused[rho]",),
    ),
    Fault(
        "regressions that were trained on the input in another format are taken",
        "jobs/pipeline/confidential/training.py",
        "            if len(_shared(product, learned.sketch, job.tasks)) > _MOST_SHARED:\n",
        "            if False:\n",
        (LEARNED + "test_training_on_the_input_is_refused",),
    ),
    Fault(
        "what a run has learned from itself is used with other settings",
        "jobs/pipeline/learning.py",
        "        if is_own and read_learned(release.learned).source.endswith(source):\n",
        "        if is_own:\n",
        (LEARNED + "test_regressions_of_a_run_are_learned_again_for_other_settings",),
    ),
    Fault(
        "answers are corrected whatever the certificate says",
        "jobs/pipeline/release/learned.py",
        "    return frozenset(names[change < -limit].tolist()) & corrected\n",
        "    return frozenset(corrected)\n",
        (LEARNED_UNIT + "test_only_clear_gains_are_kept[learned1-tried1-kept1]",),
    ),
    Fault(
        "a simulation on other places uses the housing units of the run's own",
        "jobs/pipeline/config/load.py",
        '_with(entry, "table", path=table) if entry.public_table else entry',
        "entry",
        (LEARNED + "test_housing_units_are_those_of_the_public_table",),
    ),
    Fault(
        "noise of answers that are known to be empty is counted",
        "solvers/learned/features.py",
        "np.where(is_live[self.owner], answers, 0)",
        "answers",
        (
            "tests/unit/solvers/learned/test_features.py"
            "::test_estimates_weigh_all_finer_queries_and_leave_out_what_is_known",
        ),
    ),
    Fault(
        "a noisy total decides which totals are expected",
        "jobs/pipeline/release/problems.py",
        "share = means[child] if query.size == 1 else shares[child]",
        "share = shares[child]",
        (
            "tests/unit/jobs/pipeline/release/test_prior.py"
            "::test_a_total_is_expected_to_be_the_mean_whatever_is_noisy",
        ),
    ),
    Fault(
        "the language of a page stays for all that follows",
        "jobs/pipeline/language.py",
        "        _language.reset(before)",
        "        pass",
        ("tests/unit/jobs/pipeline/test_language.py::test_a_language_ends_with_its_block",),
    ),
)
