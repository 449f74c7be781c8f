"""What expressions can call: one frozen dataclass per function. To add one, see `base.Function`."""
