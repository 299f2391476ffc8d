"""The process Spark forks its Python workers from, with the libraries already imported.

Without it every worker imports numpy, pyarrow and the solvers anew, seconds at a time. Speed only:
set as spark.python.daemon.module for embedded sessions, where the project is importable.
"""

import importlib

_LIBRARIES = (
    "pandas",  # pyarrow imports it at the first array
    "pyarrow.parquet",
    "pyarrow.csv",
    "scipy.linalg",
    "ortools.graph.python.min_cost_flow",
)
_PIPELINE = "jobs.run"  # imports the modules of all its STAGES; above this room, so by its name

for name in (*_LIBRARIES, _PIPELINE):
    importlib.import_module(name)

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
