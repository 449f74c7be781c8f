"""Ways to run tasks. So far the only one is threads of this process."""
