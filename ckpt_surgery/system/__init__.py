"""This process and its machine: threads, signals, memory and cores."""
