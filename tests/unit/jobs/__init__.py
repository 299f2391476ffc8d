"""Stages, files and configuration."""
