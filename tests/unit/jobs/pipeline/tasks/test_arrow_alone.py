"""Arrow is told that there is no pandas; everyone else finds it."""

from __future__ import annotations

import subprocess
import sys

from tests.checkout import ROOT

_CODE = """
import sys
from jobs.pipeline.tasks.arrow_alone import leave_pandas_out
leave_pandas_out()
import numpy as np, pyarrow as pa, pyarrow.compute as pc
found = pa.table({"x": np.arange(3), "y": ["a", "b", None]})
assert pc.sum(found["x"]).as_py() == 3 and found["x"].to_numpy().tolist() == [0, 1, 2]
assert found["y"].to_pylist() == ["a", "b", None]
assert pa.int64().to_pandas_dtype() is np.int64
print("pandas" in sys.modules)
leave_pandas_out()
import pandas
leave_pandas_out()
print(pandas.DataFrame({"x": [1]}).shape)
"""


def test_arrow_works_without_pandas_and_others_may_import_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["False", "(1, 1)"], done.stderr


def test_workers_are_forked_without_pandas() -> None:
    code = "import sys, jobs.pipeline.tasks.warm_daemon; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["False"], done.stderr
