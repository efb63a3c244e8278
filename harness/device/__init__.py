"""GPUs and this host: the CUDA driver, health checks, telemetry of timing, machine facts, locks."""
