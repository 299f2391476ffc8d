"""The privacy core: schemas, queries, mechanisms, accounting. Knows no geography, solver or Spark."""
