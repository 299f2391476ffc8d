"""The process Spark forks its Python workers from, with the libraries already imported.

Without it every worker would import numpy, pyarrow and the solvers, which takes seconds. It only
saves time: `spark.python.daemon.module` of embedded sessions, where the project is importable.
"""

import gc
import importlib

from jobs.pipeline.tasks.arrow_alone import leave_pandas_out

# Libraries, and the modules with the functions of tasks: by name, since this package may not import
# them. All of `jobs.pipeline.run` takes twice as long to import (1.3 against 0.7 s).
_MODULES = (
    "pyarrow.parquet",
    "pyarrow.csv",
    "scipy.linalg",
    "ortools.graph.python.min_cost_flow",
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
for name in _MODULES:
    importlib.import_module(name)
# Saves half a second in each worker. Missing kernels are compiled by the first task that solves.
machine_code = importlib.import_module("solvers.least_squares.machine_code")
if machine_code.is_kept():
    machine_code.load_kernels()
gc.enable()
gc.freeze()  # workers, which are forked from here, do not look through what is there

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
