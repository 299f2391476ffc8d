"""What claims, draws, records, finalizes and verifies is one function each, for censuses and surveys."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.checkout import ROOT

IMPORTED = "jobs.analysis.import_nmf._write_release"  # takes over answers drawn elsewhere
REPLICATED = "jobs.pipeline.repeat.noise_key"  # seeded noise on a release, which spends nothing
JOURNALS = {
    "jobs.pipeline.folder.draws.begin",
    "jobs.pipeline.folder.draws.confirm",
    "jobs.pipeline.folder.draws.fail",
    "jobs.pipeline.folder.draws.note_account_line",
    "jobs.pipeline.folder.draws.record",
    "jobs.pipeline.folder.solutions.note_solve",
    "jobs.pipeline.storage.account.make_reservations",
    "jobs.pipeline.storage.account.note_failed_check",
    "jobs.pipeline.storage.account.set_limit",
    "jobs.pipeline.storage.journal.begin_journal",
    "jobs.pipeline.storage.ledger.record_measured",
    "jobs.pipeline.storage.ledger.finalize_ledger",
}
REPLICATES = "jobs.analysis.replicate.replicate"  # after finalizing, beside what it names


def calls() -> Iterator[tuple[str, str]]:
    """Pairs of a caller, module and function, and of what it calls, as it is written there."""
    for package in ("das", "jobs"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef):
                    for node in ast.walk(function):
                        if isinstance(node, ast.Call):
                            yield f"{module}.{function.name}", ast.unparse(node.func)
                            if node.args and ast.unparse(node.func) == "write_document":
                                yield f"{module}.{function.name}", ast.unparse(node)


@cache
def all_calls() -> frozenset[tuple[str, str]]:
    return frozenset(calls())


def callers(*called: str) -> set[str]:
    return {caller for caller, function in all_calls() if function in called}


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        ("make_reservations", {"jobs.pipeline.folder.spending.reserve_budgets"}),
        (
            "NoiseKey.draw",
            {
                "jobs.pipeline.confidential.draw.draw_part",
                "jobs.pipeline.confidential.draw.draw_and_write",
            },
        ),
        (
            "NoiseKey.for_testing",
            {
                "jobs.pipeline.confidential.draw.draw_part",
                "jobs.pipeline.confidential.draw.draw_and_write",
                REPLICATED,
            },
        ),
        ("append_to_journal", JOURNALS),
        ("begin_journal", {"jobs.pipeline.storage.ledger.start_ledger"}),
        ("draws.begin", {"jobs.pipeline.folder.draws.measure_once"}),
        ("draws.record", {"jobs.pipeline.folder.draws.measure_once"}),
        ("draws.fail", {"jobs.pipeline.folder.draws.measure_once"}),
        (
            "write_document(release.manifest, manifest, mode=READABLE)",
            {"jobs.pipeline.release.finalizing.write_manifest"},
        ),
        ("sweep", {"jobs.pipeline.release.finalizing.tidy_release"}),
        ("open_to_readers", {"jobs.pipeline.release.finalizing.write_manifest", REPLICATES}),
        ("record_measured", {"jobs.pipeline.confidential.draw.draw_part", IMPORTED}),
    ],
)
def test_one_function_does_it(called, expected):
    assert callers(called) == expected


@pytest.mark.parametrize(
    ("called", "census", "survey"),
    [
        (
            "refuse_spent_grants",
            "jobs.pipeline.folder.open.open_folder",
            "jobs.pipeline.folder.open.open_folder",
        ),
        ("reserve_budgets", "jobs.pipeline.run.", "jobs.survey.run."),
        ("draw_part", "jobs.pipeline.confidential.stages.", "jobs.survey.confidential.measure."),
        ("start_ledger", "jobs.pipeline.confidential.stages.", "jobs.survey.folder."),
        ("finalize_ledger", "jobs.pipeline.release.stages.", "jobs.survey.run."),
        ("tidy_release", "jobs.pipeline.release.stages.", "jobs.survey.manifest."),
        ("write_manifest", "jobs.pipeline.release.manifest.", "jobs.survey.manifest."),
        ("verify_contents", "jobs.pipeline.release.verify.", "jobs.survey.manifest."),
        ("verify_manifest", "jobs.pipeline.release.verify.", "jobs.survey.manifest."),
    ],
)
def test_both_kinds_of_run_reach_it(called, census, survey):
    found = callers(called)
    for start in (census, survey):
        assert any(caller.startswith(start) for caller in found), found


def test_no_other_function_writes_a_document_named_manifest():
    written = {
        (c, f) for c, f in all_calls() if f.startswith("write_document(") and "manifest" in f
    }
    assert {caller for caller, _ in written} == {"jobs.pipeline.release.finalizing.write_manifest"}
