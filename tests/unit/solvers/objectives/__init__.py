"""Objectives other than least squares."""
