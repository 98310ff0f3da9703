"""HTTP clients, request limits, machine resources and ports: what every layer may use."""
