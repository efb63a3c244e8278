"""The task suite: catalogue, sizes, tolerances, mutants, frozen versions."""
