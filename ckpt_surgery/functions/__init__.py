"""The functions that expressions can call: one frozen dataclass each. `base.Function` says how to add one."""
