"""The shell: configuration, files, Spark, the command line."""
