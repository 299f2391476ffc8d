"""Run tasks on Spark or in this process, with progress. The only package that imports pyspark."""
