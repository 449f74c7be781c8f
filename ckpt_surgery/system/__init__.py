"""Threads and signals of this process; memory and cores of its machine."""
