"""Where tasks run. An engine offers one function: run all of them, within a budget."""
