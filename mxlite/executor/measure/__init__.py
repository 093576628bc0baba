"""Steps and kernels that are timed, for plans that weigh real seconds."""
