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
STAGE = "jobs/confidential/measure.py"
DRAW = "jobs/confidential/draw.py"
DRAWS = "jobs/folder/draws.py"
STRUCTURE = "solvers/least_squares/blocks.py"
KERNELS = "solvers/least_squares/kernels.py"
OPTIMALITY = "solvers/least_squares/certificate.py"
SOLVER = "solvers/least_squares/solve.py"
TREE_PASS = "das/tree/passes.py"
TARGETS = "das/tree/targets.py"
AREA = "das/tree/area.py"
INTERVALS = "das/tree/intervals.py"
POSTERIOR = "das/tree/prior.py"
LARGEST = "das/tree/largest.py"
GROUPS = "jobs/planning/groups.py"
PROPOSALS = "jobs/drafting/attributes.py"
SPINE_FILES = "jobs/input/spine.py"
RESPINE = "geography/respine.py"
OFFSPINE = "geography/offspine.py"

TABLE_LAW = "tests/evidence/exact/test_table_law.py::"
REFERENCE_LAW = "tests/evidence/exact/test_reference_law.py::"
TABLE_UNIT = "tests/unit/das/mechanisms/test_table.py::"
WIDE_UNIT = "tests/unit/das/mechanisms/test_wide.py::"
COUNTER_BLOCKS = "tests/evidence/exact/test_counter_blocks.py::"
ENTROPY_UNIT = "tests/unit/das/mechanisms/test_entropy.py::"
NOISE_UNIT = "tests/unit/das/mechanisms/test_noise.py::"
MECHANISM_UNIT = "tests/unit/das/mechanisms/test_mechanism.py::"
MEASURE_UNIT = "tests/unit/das/test_measure.py::"
NOISE_KEY_UNIT = "tests/unit/jobs/confidential/test_noise_key.py::"
JOINT_ORACLE = "tests/unit/das/queries/test_joint_sensitivity_oracle.py::"
CHANGES_UNIT = "tests/unit/das/test_change_costs.py::"
BUDGET_UNIT = "tests/unit/das/privacy/test_budget.py::"
LEDGER_UNIT = "tests/unit/das/privacy/test_ledger.py::"
SPINE_FILES_UNIT = "tests/unit/jobs/input/test_spine.py::"
RESPINE_UNIT = "tests/unit/geography/test_respine.py::"
RESPINE_LAWS = "tests/unit/geography/test_respine_properties.py::"
OFFSPINE_ORACLE = "tests/unit/geography/test_offspine_oracle.py::"
PROPOSALS_UNIT = "tests/unit/jobs/drafting/test_attributes.py::"
DIVERGENCE = "tests/evidence/privacy/test_divergence.py::"
SOLVER_UNIT = "tests/unit/solvers/least_squares/test_solve.py::"
STAGE_TEST = "tests/evidence/privacy/test_measure_stage.py::"
MEASURE_TEST = "tests/unit/jobs/confidential/test_measure.py::"
SURVEYS = "tests/pipeline/local/test_surveys.py::"
ESTIMATION = "tests/unit/das/tree/test_estimation_oracle.py::"
LARGEST_UNIT = "tests/unit/das/tree/test_largest_oracle.py::"
EQUITY_UNIT = "tests/unit/jobs/planning/test_equity.py::"
INTERVALS_UNIT = "tests/unit/das/tree/test_intervals.py::"
POSTERIOR_UNIT = "tests/unit/das/tree/test_prior.py::"

FAULTS = (
    # --- tables ---
    Fault(
        "thresholds are one too large",
        TABLE,
        "np.array(_certain_floors(weights, word_bits), np.uint64)",
        "np.array(_certain_floors(weights, word_bits), np.uint64) + np.uint64(1)",
        (TABLE_LAW + "test_thresholds_are_the_true_floors[gaussian 1]",),
    ),
    Fault(
        "thresholds are rounded up",
        TABLE,
        "return floors[: floors.index(top) + 1]",
        "return [min(f + 1, top) for f in floors[: floors.index(top) + 1]]",
        (TABLE_LAW + "test_thresholds_are_the_true_floors[laplace 1]",),
    ),
    Fault(
        "a search finds the entry before",
        TABLE,
        'np.searchsorted(self.thresholds, prefix, side="right")',
        'np.searchsorted(self.thresholds, prefix, side="left")',
        (TABLE_LAW + "test_lookup_agrees_with_draw[gaussian 1-5]",),
    ),
    Fault(
        "the guide decides cells that a threshold cuts",
        TABLE,
        'np.searchsorted(thresholds, final, side="right")',
        'np.searchsorted(thresholds, final, side="left")',
        (TABLE_LAW + "test_lookup_agrees_with_draw[gaussian 1-5]",),
    ),
    Fault(
        "a tie is decided without further bits",
        TABLE,
        "return self._settle(prefix, bits) if is_tied else magnitude",
        "return magnitude",
        (TABLE_LAW + "test_gaussian_table[sigma_sq2-3]",),
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
        (TABLE_LAW + "test_lookup_agrees_with_draw[gaussian 1-5]",),
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
        (TABLE_LAW + "test_numbers_next_to_a_threshold_are_settled_correctly[gaussian 1]",),
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
        (TABLE_LAW + "test_every_sigma_sq_has_a_sampler_of_its_law[1]",),
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
        (DIVERGENCE + "test_one_query_under_zcdp_costs_exactly_rho[4-total-unbounded]",),
    ),
    Fault(
        "the scale is epsilon / Delta",
        LAPLACE,
        "return cls(sensitivity / cost)",
        "return cls(cost / sensitivity)",
        (
            DIVERGENCE
            + "test_one_query_under_pure_privacy_costs_exactly_epsilon[4-total-unbounded]",
        ),
    ),
    Fault(
        "pure privacy is paid with the L2 sensitivity",
        LAPLACE,
        "MappingProxyType({Definition.PURE: Norm.L1})",
        "MappingProxyType({Definition.PURE: Norm.L2_SQUARED})",
        (
            DIVERGENCE
            + "test_one_query_under_pure_privacy_costs_exactly_epsilon[4-residual(age)-bounded]",
        ),
    ),
    Fault(
        "a changed record moves one answer only",
        SENSITIVITY,
        "return max(2 * product, *apart)",
        "return max(product, *apart)",
        (DIVERGENCE + "test_one_query_under_zcdp_costs_exactly_rho[4-sex-bounded]",),
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
        "return changed / sensitivity(query, neighbors, norm)",
        "return Fraction(2)",
        (
            CHANGES_UNIT + "test_listed_queries_cost_by_their_own_sensitivities"
            "[residual(sex)-zcdp-4]",
        ),
    ),
    Fault(
        "a planned change of an attribute costs what an added record costs",
        CHANGES,
        "alone = (min(record, cost * one) for one in joint.attributes)",
        "alone = (min(record, cost * one / 2) for one in joint.attributes)",
        (CHANGES_UNIT + "test_planned_queries_cost_what_their_worst_pair_costs[orp-unbounded]",),
    ),
    Fault(
        "opposite signs within a geounit are forgotten",
        SENSITIVITY,
        "return max(2 * product, *apart)",
        "return 2 * product",
        (DIVERGENCE + "test_one_query_under_zcdp_costs_exactly_rho[4-residual(age)-bounded]",),
    ),
    Fault(
        "a changed record moves one answer only, in L1",
        SENSITIVITY,
        "return product if neighbors is Neighbors.UNBOUNDED else 2 * product",
        "return product",
        (DIVERGENCE + "test_one_query_under_pure_privacy_costs_exactly_epsilon[4-sex-bounded]",),
    ),
    Fault(
        "the share of the geolevel is dropped",
        STRATEGY,
        "return budget.total * level_share * share",
        "return budget.total * share",
        (DIVERGENCE + "test_a_tree_under_pure_privacy[4-unbounded-tight]",),
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
        (DIVERGENCE + "test_a_tree_under_pure_privacy[4-unbounded-an only child]",),
    ),
    Fault(
        "the seal accepts less than was granted",
        LEDGER,
        "if low != self.granted or high != self.granted:",
        "if high > self.granted:",
        (LEDGER_UNIT + "test_a_path_that_spends_too_little_is_noticed_beside_good_ones",),
    ),
    Fault(
        "a stratum is sealed with what another spends",
        LEDGER,
        'entry.cost if entry.stratum in ("", stratum) else Fraction(0)',
        "entry.cost",
        (LEDGER_UNIT + "test_strata_do_not_add_up_and_every_one_is_sealed",),
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
        "if one.group.meets(other.group):",
        "if one.group is other.group:",
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
            "tests/unit/jobs/storage/test_ledger.py::test_overspending_is_refused_before_it_is_recorded",
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
        "jobs/confidential/noise_key.py",
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
        "sessions ask nobody for a secret",
        "jobs/config/protection.py",
        "if allow_open and (is_off or not is_local(master)):",
        "if is_off or not is_local(master):",
        ("tests/unit/jobs/config/test_protection.py::test_every_session_is_started_protected",),
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
        "return batch.first + np.flatnonzero",
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
        "own + own @ (inverse @ given @ inverse - inverse) @ own",
        "own + 0.9 * own @ (inverse @ given @ inverse - inverse) @ own",
        (ESTIMATION + "test_every_kind_of_strategy_with_every_kind_of_invariant",),
    ),
    Fault(
        "what invariants fix is left out",
        TREE_PASS,
        "values.append(known + _apply(covariance, place, moved))",
        "values.append(_apply(covariance, place, moved))",
        (ESTIMATION + "test_every_kind_of_strategy_with_every_kind_of_invariant",),
    ),
    Fault(
        "a family of leaves has the variance of one",
        TREE_PASS,
        "np.maximum(distinct, 1)[:, None]",
        "np.ones_like(distinct)[:, None]",
        (ESTIMATION + "test_summed_leaves_give_the_same_families",),
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
        "own = np.flatnonzero((bins == index) & (flat <= _largest(self.variance)))",
        "own = np.flatnonzero(bins == index)",
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
        "squared = (point.total / height) ** 2",
        "squared = point.total / height",
        (LARGEST_UNIT + "test_no_point_of_a_grid_is_better",),
    ),
    Fault(
        "a group is as large in every geounit as in all together",
        GROUPS,
        "out[index, level] = whole / geounits[level]",
        "out[index, level] = whole",
        (EQUITY_UNIT + "test_plan_prints_errors_of_groups",),
    ),
    Fault(
        "a proposed schema tells how old the oldest person is",
        PROPOSALS,
        "starts = range(0, _TOP, years)",
        "starts = range(0, min(_TOP, column.most), years)",
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
        "unknown = np.flatnonzero(leaves[at] != own)",
        "unknown = np.flatnonzero(leaves[at] > own)",
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
)
