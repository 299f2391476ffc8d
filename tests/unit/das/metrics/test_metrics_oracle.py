"""Mergeable, sparse, exact summaries against the definitions coded naively on all answers."""

from __future__ import annotations

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from das.metrics import accuracy
from das.metrics.accuracy import (
    SIZE_EDGES,
    TOP,
    TRUE_EDGES,
    ErrorSummary,
    empty_summary,
    merge,
    summarize,
    summarize_query,
)
from das.metrics.statistics import ERROR_EDGES, QUANTILES, describe
from das.queries.query import Factor, Query, parse_query
from das.schema import Attribute, Schema
from tests.builders.histograms import from_dense

SCHEMA = Schema(
    "toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))), recodes=()
)
CELLS = SCHEMA.size
COUNT = st.one_of(st.integers(0, 3), st.sampled_from([0, 0, 0, 9, 10, 49, 50, 200, 999, 20_000]))
ROW = st.lists(COUNT, min_size=CELLS, max_size=CELLS)
BATCH = st.lists(st.tuples(ROW, ROW), max_size=8)


def dense(batch):
    truth = np.array([t for t, _ in batch], np.int64).reshape(-1, CELLS)
    released = np.array([r for _, r in batch], np.int64).reshape(-1, CELLS)
    return truth, released


def codes(batch, prefix=""):
    return [f"{prefix}{index:03d}" for index in range(len(batch))]


def summary_of(batch, prefix="", query="detailed"):
    truth, released = (from_dense(h) for h in dense(batch))
    return summarize_query(parse_query(SCHEMA, query), codes(batch, prefix), truth, released)


def same(a: ErrorSummary, b: ErrorSummary) -> bool:
    arrays = all(
        np.array_equal(getattr(a, n), getattr(b, n)) for n in ("geounits", "keys", "counts")
    )
    rest = ("persons", "appeared", "vanished", "top")
    return arrays and all(getattr(a, n) == getattr(b, n) for n in rest)


def last_at_most(edges, value):
    return max(index for index, edge in enumerate(edges) if edge <= value)


def naive_means(errors):
    n = len(errors)
    if not n:
        return dict.fromkeys(("mae", "rmse", "bias", "max", "exact")) | {"answers": 0}
    return {
        "answers": n,
        "mae": sum(abs(e) for e in errors) / n,
        "rmse": math.sqrt(Fraction(sum(e * e for e in errors), n)),
        "bias": sum(errors) / n,
        "max": max(abs(e) for e in errors),
        "exact": sum(e == 0 for e in errors) / n,
    }


def naive(geocodes, totals, truth, released):
    """Statistics from plain lists of answers, by their definitions."""
    totals = totals.tolist()
    rows = list(zip(geocodes, totals, truth.tolist(), released.tolist(), strict=True))
    answers = [(t, r, total) for _, total, ts, rs in rows for t, r in zip(ts, rs, strict=True)]
    errors = [r - t for t, r, _ in answers]
    ordered = sorted(abs(e) for e in errors)
    live = [abs(r - t) for t, r, _ in answers if t != 0 or r != 0]
    changes = [
        (
            -sum(abs(r - t) for t, r in zip(ts, rs, strict=True)),
            code,
            total,
            sum(rs) - sum(ts),
        )
        for code, total, ts, rs in rows
    ]
    out = naive_means(errors) | {
        "geounits": len(rows),
        "persons": sum(totals),
        "l1": sum(map(abs, errors)),
        "tvd": sum(map(abs, errors)) / (2 * sum(totals)) if sum(totals) else None,
        "appeared": sum(t == 0 and r != 0 for t, r, _ in answers),
        "vanished": sum(t != 0 and r == 0 for t, r, _ in answers),
        "live": len(live),
        "distribution": [
            sum(last_at_most(ERROR_EDGES, e) == index for e in live) / len(live)
            for index in range(len(ERROR_EDGES))
        ]
        if live
        else [],
        "by_size": [
            naive_means(
                [r - t for t, r, total in answers if last_at_most(SIZE_EDGES, total) == index]
            )
            | {"geounits": sum(last_at_most(SIZE_EDGES, total) == index for total in totals)}
            for index in range(len(SIZE_EDGES))
        ],
        "by_true": [
            naive_means([r - t for t, r, _ in answers if last_at_most(TRUE_EDGES, t) == index])
            for index in range(len(TRUE_EDGES))
        ],
        "most_changed": [
            {"geocode": code, "l1": -rank, "persons": total, "net": net}
            for rank, code, total, net in sorted(changes)[:TOP]
            if rank
        ],
    }
    for name, share in QUANTILES.items():
        out[name] = ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
    return out


def without_labels(found):
    plain = dict(found)
    for key in ("by_size", "by_true"):
        plain[key] = [{k: v for k, v in row.items() if k != "bin"} for row in plain[key]]
    return plain


@given(BATCH, st.sampled_from(["total", "sex", "age", "detailed"]))
def test_statistics_equal_the_naive_ones(batch, name):
    query = parse_query(SCHEMA, name)
    truth, released = dense(batch)
    answers = [query.answer(from_dense(h)) for h in (truth, released)]
    expected = naive(codes(batch), truth.sum(1), *answers)
    assert without_labels(describe(summary_of(batch, query=name))) == expected


@given(BATCH, st.sampled_from(["total", "sex", "detailed"]))
def test_sparse_equals_dense(batch, name):
    query = parse_query(SCHEMA, name)
    truth, released = dense(batch)
    answers = [query.answer(from_dense(h)) for h in (truth, released)]
    assert same(summary_of(batch, query=name), summarize(codes(batch), truth.sum(1), *answers))


@given(BATCH)
def test_a_query_that_is_no_partition_is_answered_densely(batch):
    prefix = Factor(np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]]), ("0", "0-1", "0-2"))
    query = Query("prefix", (Factor(np.ones((1, 2), np.int64), ("all",)), prefix))
    truth, released = dense(batch)
    assume(truth.any() and released.any())
    histograms = [from_dense(h) for h in (truth, released)]
    found = summarize_query(query, codes(batch), *histograms)
    answers = [query.answer(h) for h in histograms]
    assert without_labels(describe(found)) == naive(codes(batch), truth.sum(1), *answers)


@given(BATCH, BATCH)
def test_merge_commutes(first, second):
    a, b = summary_of(first, "a"), summary_of(second, "b")
    assert same(merge(a, b), merge(b, a))


@given(BATCH, BATCH, BATCH)
def test_merge_is_associative(first, second, third):
    a, b, c = summary_of(first, "a"), summary_of(second, "b"), summary_of(third, "c")
    assert same(merge(merge(a, b), c), merge(a, merge(b, c)))


@given(BATCH, st.integers(0, 8))
def test_merging_parts_equals_the_whole(batch, cut):
    geocodes = codes(batch)
    truth, released = dense(batch)
    totals = truth.sum(1)
    parts = [
        summarize(geocodes[s], totals[s], truth[s], released[s])
        for s in (slice(None, cut), slice(cut, None))
    ]
    assert same(merge(*parts), summarize(geocodes, totals, truth, released))
    assert same(merge(parts[0], empty_summary()), parts[0])


@pytest.mark.parametrize("n_geounits", [TOP - 1, TOP, TOP + 1, 5 * TOP])
def test_the_most_changed_are_kept_through_merging_whatever_the_ties(n_geounits):
    changes = [index % 4 for index in range(n_geounits)]
    truth = np.full((n_geounits, 1), 10, np.int64)
    released = truth + np.array(changes)[:, None]
    names = [f"{index:03d}" for index in range(n_geounits)]
    found = empty_summary()
    for low in range(0, n_geounits, 7):
        part = slice(low, low + 7)
        found = merge(found, summarize(names[part], truth[part, 0], truth[part], released[part]))
    ranked = sorted((-change, name) for change, name in zip(changes, names, strict=True) if change)
    assert [(-c.l1, c.geocode) for c in found.top] == ranked[:TOP]


@given(batch=BATCH, query=st.sampled_from(["total", "sex", "age", "detailed"]))
def test_a_summary_is_the_same_whether_answers_are_sorted_or_have_places(batch, query):
    found = []
    for places in (0, 8, 10**6):
        with mock.patch.object(accuracy, "_DENSE", places):
            found.append(summary_of(batch, query=query))
    assert all(same(found[0], other) for other in found[1:])
