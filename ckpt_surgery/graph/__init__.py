"""An output's value as functions over leaves: what a region of it needs, costs, and is."""
