"""HTTP clients, request limits, timeouts, machine resources and ports, for all layers."""
