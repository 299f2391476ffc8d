"""Unit tests of das.mechanisms."""
