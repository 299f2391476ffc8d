"""Public weights and pooling of strata: by labels and public sizes alone."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from das.synthesis.measure import ONE_WAY_SHARE, POPULATION_SHARE
from jobs.survey.checks import POOLED, PublicStratum
from jobs.survey.models import SynthesisConfig, SynthesisStrataConfig
from jobs.survey.plan import load_survey, pool_small
from tests.builders.survey import configure, write_survey

LABELS = [(sex, group) for sex in "mf" for group in "abc"]


@given(
    sizes=st.lists(st.integers(0, 1000), min_size=6, max_size=6),
    least=st.fractions(0, Fraction(1, 2), max_denominator=50),
)
def test_pooling_keeps_every_weight_and_person(sizes, least):
    public = {
        labels: PublicStratum(Fraction(i + 1, 21), size)
        for i, (labels, size) in enumerate(zip(LABELS, sizes, strict=True))
    }
    kept, weights, pooled, stratum_of = pool_small(public, least, (2, 3))
    assert sum(weights.values()) == 1
    assert list(kept) == list(weights)
    assert all(size >= 1 for size in kept.values())
    assert stratum_of.shape == (2, 3)
    names = list(kept)
    for place, (labels, stratum) in enumerate(public.items()):
        name, found = " * ".join(labels), names[stratum_of.reshape(-1)[place]]
        is_small = stratum.size < max(least * sum(sizes), 1)
        assert (name in pooled) == is_small
        assert found == (POOLED if is_small else name)
    inside = [public[labels] for labels in LABELS if " * ".join(labels) in pooled]
    if inside:
        assert kept[POOLED] == max(1, sum(one.size for one in inside))
        assert weights[POOLED] == sum(one.weight for one in inside)


def test_the_digest_holds_what_is_measured_and_nothing_else(tmp_path):
    first = load_survey(write_survey(tmp_path)).digest
    same = {
        "name": "other", "output__directory": "elsewhere", "synthesis__components": 3,
        "synthesis__seed": 9, "synthesis__n_records": 10, "statistics__0__shrink": True,
        "privacy__account": "account.jsonl", "evaluate": {"floor": 7, "groups": [["sex"]]},
    }  # fmt: skip
    for key, value in same.items():
        assert load_survey(configure(tmp_path, **{key: value})).digest == first, key
    other = {
        "statistics__0__sd_bound": 1501, "statistics__0__min_share": "1/100", "privacy__rho": "5",
        "privacy__neighbors": "unbounded", "synthesis__n_remeasured_pairs": 2, "synthesis__weighting": "equal", "privacy__budget_id": "2",
        "statistics__1__steps": 3, "data__n_records": 601, "data__path": "other.csv",
    }  # fmt: skip
    for key, value in other.items():
        assert load_survey(configure(tmp_path, **{key: value})).digest != first, key
    weights = tmp_path / "weights.csv"
    weights.write_text(weights.read_text().replace("m,a,0.30", "m,a,0.3"))
    assert load_survey(configure(tmp_path)).digest != first


def test_costs_are_shares_of_the_budget_exactly(tmp_path):
    plan = load_survey(write_survey(tmp_path, privacy__rho="1/3"))
    assert plan.costs == {
        "income": Fraction(1, 12), "age": Fraction(1, 12), "synthesis": Fraction(1, 6)
    }  # fmt: skip
    for mean in plan.means:
        assert mean.steps.rho == mean.cost


def test_a_claim_states_what_a_changed_record_costs(tmp_path):
    """Twice a neighbor is four times the rho where neighbors are added or removed."""
    assert load_survey(write_survey(tmp_path)).reservation("run").changed_record == 4
    unbounded = load_survey(configure(tmp_path, privacy__neighbors="unbounded"))
    assert unbounded.reservation("run").changed_record == 16


def test_a_claim_names_the_marginals_that_are_exact(tmp_path):
    table = {"query": "sex * group", "exact": ["sex"], "method": "conditioned", "share": "1"}
    pure = {"definition": "pure", "epsilon": "8"}
    file = write_survey(
        tmp_path, privacy=pure, synthesis=None, statistics=[], contingency_tables=[table]
    )
    assert load_survey(file).reservation("run").exact == ("sex in sex_group",)


def test_defaults_of_run_files_are_those_that_were_measured():
    assert SynthesisConfig.model_fields["one_way_share"].default == ONE_WAY_SHARE
    assert SynthesisStrataConfig.model_fields["population_model_share"].default == POPULATION_SHARE
