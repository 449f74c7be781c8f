"""Pytrees of a running program, and arrays on its devices."""
