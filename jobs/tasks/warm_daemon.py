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
_STAGES = (
    "confidential.read.formats",
    "confidential.histograms",
    "confidential.measure",
    "release.solve",
    "release.microdata",
    "release.tables",
    "confidential.evaluate",
)

for name in (*_LIBRARIES, *(f"jobs.{stage}" for stage in _STAGES)):
    importlib.import_module(name)

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
