"""Errors: one tree, one exit code per cause, facts that survive a process border."""

from __future__ import annotations

import pickle

from das import errors

EXIT_CODES = {
    errors.ConfigError: 2,
    errors.InputError: 2,
    errors.SchemaError: 2,
    errors.GeographyError: 2,
    errors.OutputError: 2,
    errors.BudgetError: 3,
    errors.LedgerError: 3,
    errors.SpentError: 3,
    errors.InfeasibleError: 4,
    errors.SolverError: 5,
    errors.VerificationError: 6,
    errors.DamageError: 6,
    errors.RuntimeSetupError: 7,
}


def _tree(kind: type[errors.DasError]) -> set[type[errors.DasError]]:
    return {kind}.union(*(_tree(below) for below in kind.__subclasses__()))


def test_every_error_has_the_documented_exit_code():
    project = {kind for kind in _tree(errors.DasError) if kind.__module__ == "das.errors"}
    assert project == {errors.DasError, *EXIT_CODES}
    assert {kind: kind.exit_code for kind in EXIT_CODES} == EXIT_CODES


def test_message_and_facts_survive_pickling():
    for kind in EXIT_CODES:
        error = kind("a.yaml: rho", "must be positive", got=0, want="a fraction", remedy="raise it")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert vars(copy) == vars(error)
        assert str(copy) == ("a.yaml: rho: must be positive; got 0; expected a fraction; raise it")


def test_absent_facts_leave_no_trace_in_the_message():
    assert str(errors.DasError("here", "is wrong")) == "here: is wrong"
    assert str(errors.DasError("here", "is wrong", got="")) == "here: is wrong; got "
    assert str(errors.DasError("here", "is wrong", remedy="mend it")) == "here: is wrong; mend it"
