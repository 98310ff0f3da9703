"""The gateway: an OpenAI- and Anthropic-compatible server in front of samplers, which records."""
