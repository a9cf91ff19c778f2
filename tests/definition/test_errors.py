"""What people see of an error, and the exit codes that scripts rely on."""

from __future__ import annotations

import pickle

from spark_jobs import errors


def test_an_error_says_what_where_and_what_to_do() -> None:
    assert (
        str(errors.SourceError("there is no table", "raw.flights", "Create it"))
        == "there is no table (raw.flights). Create it"
    )
    assert str(errors.CatalogError("the disk is full")) == "the disk is full"


def test_exit_codes_are_fixed() -> None:
    codes = {error.__name__: error.exit_code for error in errors.RewindowError.__subclasses__()}
    assert codes == {
        "DefinitionError": 2,
        "DocumentError": 4,
        "NotApprovedError": 3,
        "SourceError": 4,
        "HistoryError": 5,
        "EmptyRangeError": 6,
        "CatalogError": 7,
        "EnvironmentSetupError": 8,
        "RunStateError": 9,
    }
    assert errors.RewindowError.exit_code == 1


def test_an_error_crosses_process_boundaries() -> None:
    problem = errors.Problem("p.yaml", 3, "window.size", "`0` is not positive", "write a duration longer than 0")
    copy = pickle.loads(pickle.dumps(errors.DefinitionError.listing([problem, problem])))
    assert copy.problems == (problem,)
    assert str(copy) == "p.yaml:3: window.size: `0` is not positive; write a duration longer than 0"
