"""The value of an output as functions of leaves: what a region of it needs and costs, and its evaluation."""
