"""Functions of trees as recipes."""
