"""Running tasks: Spark, its session and cluster, progress. Alone knows pyspark."""
