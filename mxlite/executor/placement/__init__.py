"""One step on several devices: where each node runs, and what each device plans of it."""
