"""Running programs: Sandbox Fusion client and local runner."""
