"""Which queries serve a workload."""
