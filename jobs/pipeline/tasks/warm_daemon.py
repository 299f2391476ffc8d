"""The process Spark forks its Python workers from, with the libraries already imported.

Without it every worker imports numpy, pyarrow and the solvers anew, seconds at a time. Speed only:
set as spark.python.daemon.module for embedded sessions, where the project is importable.
"""

import gc
import importlib

from jobs.pipeline.tasks.arrow_alone import leave_pandas_out

_LIBRARIES = (
    "pyarrow.parquet",
    "pyarrow.csv",
    "scipy.linalg",
    "ortools.graph.python.min_cost_flow",
)
# Where the functions of tasks stand; above this room, so by name. All of `jobs.pipeline.run` takes
# twice as long to import (1.3 against 0.7 s), and workers need none of the rest.
_TASKS = (
    "jobs.pipeline.confidential.read.formats",
    "jobs.pipeline.confidential.histograms",
    "jobs.pipeline.confidential.measure",
    "jobs.pipeline.confidential.evaluate",
    "jobs.pipeline.release.estimate",
    "jobs.pipeline.release.solve",
    "jobs.pipeline.release.microdata",
    "jobs.pipeline.release.tables",
)

gc.disable()  # imports make no garbage
leave_pandas_out()
for name in (*_LIBRARIES, *_TASKS):
    importlib.import_module(name)
# Half a second in each worker otherwise. What is not compiled yet is compiled by who solves first.
machine_code = importlib.import_module("solvers.least_squares.machine_code")
if machine_code.is_kept():
    machine_code.load_kernels()
gc.enable()
gc.freeze()  # workers, which are forked from here, do not look through what is there

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
