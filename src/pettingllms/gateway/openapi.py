"""The gateway's OpenAPI description, generated from the request models. It is not served."""

from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema

from pettingllms.gateway.server import DIALECTS, PREFIXES, RewardBody

ERRORS = {
    "400": "invalid request, or the role is ambiguous",
    "401": "missing or invalid API key",
    "403": "the key is for another role or lacks the permission",
    "404": "no such role or reply",
    "408": "the body arrived too slowly",
    "409": "no reply to reward yet",
    "413": "the body is too large",
    "429": "too many calls",
    "503": "no inference engine is available",
}


def description() -> dict[str, Any]:
    """All routes with the schemas of their bodies."""
    bodies = {dialect.path: dialect.request for dialect in DIALECTS} | {"/rewards": RewardBody}
    _, schemas = models_json_schema(
        [(body, "validation") for body in bodies.values()],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, Any] = {}
    for prefix in PREFIXES:
        named = [_role()] if "{role}" in prefix else []
        for path, body in bodies.items():
            paths[prefix + path] = {"parameters": named, "post": _operation(body.__name__)}
        listing = {"responses": _responses()}
        paths[f"{prefix}/models"] = {"parameters": named, "get": listing}
    return {
        "openapi": "3.1.0",
        "info": {"title": "PettingLLMs gateway", "version": version("pettingllms")},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(body: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{body}"}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}, "responses": _responses()}


def _responses() -> dict[str, Any]:
    errors = {status: {"description": reason} for status, reason in ERRORS.items()}
    return {"200": {"description": "the response"}, **errors}


def _role() -> dict[str, Any]:
    return {"name": "role", "in": "path", "required": True, "schema": {"type": "string"}}
