"""The smallest value that a JSON Schema accepts, for answers that must be JSON."""

from typing import Any

_EMPTY: dict[str, Any] = {
    "string": "scripted",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "null": None,
}


def minimal_value(schema: dict[str, Any]) -> Any:
    """Make a value with only what the schema requires; first choices everywhere."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return minimal_value(schema[choice][0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        properties = schema.get("properties") or {}
        return {
            name: minimal_value(properties.get(name, {})) for name in schema.get("required", [])
        }
    if kind == "array":
        return [minimal_value(schema.get("items") or {}) for _ in range(schema.get("minItems", 0))]
    return _EMPTY.get(kind, "scripted")
