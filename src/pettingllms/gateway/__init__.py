"""The gateway: an OpenAI- and Anthropic-compatible server that records calls to samplers."""
