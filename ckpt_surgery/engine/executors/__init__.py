"""Ways to run tasks; threads of this process so far."""
