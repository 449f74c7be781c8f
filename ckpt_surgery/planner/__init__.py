"""Recipe, listings, target and destination to a plan; and the plan's document."""
