"""The privacy core: schemas, queries, mechanisms, accounting. No geography, no Spark."""
