"""The JSON Schema of the recipe language."""

from typing import Any

from ckpt_surgery.language.models import Recipe


def schema() -> dict[str, Any]:
    """The JSON Schema of the recipe language, for editors."""
    described = Recipe.model_json_schema(by_alias=True)
    tidy = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_null(described)}
    tidy["title"] = "ckpt-surgery recipe"
    return tidy


def _without_null(value: Any) -> Any:
    """The schema without the alternative null, which pydantic adds: a field is left out, not null."""
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {k: _without_null(v) for k, v in value.items() if not (k == "default" and v is None)}
    options = [option for option in kept.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        del kept["anyOf"]
        return {**options[0], **kept}
    return {**kept, "anyOf": options} if options else kept
