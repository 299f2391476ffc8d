"""Documents of a run as frozen dataclasses, from which their JSON Schemas are generated."""
