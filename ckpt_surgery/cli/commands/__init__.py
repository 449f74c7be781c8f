"""One module per command: each defines `command`, a thin layer on `ckpt_surgery.api.applying`."""
