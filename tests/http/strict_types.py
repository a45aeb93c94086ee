"""A client's types, made to take nothing for another and no field that they do not name."""

import json

import served

pydantic = served.need("pydantic")


def forbids_others(kind, but=()):
    """An adapter of the type whose models, down to the last, refuse other fields; `but`: models that do not."""
    seen = set()

    def walk(annotation):
        if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel) and annotation not in seen:
            seen.add(annotation)
            for field in annotation.model_fields.values():
                walk(field.annotation)
        for part in getattr(annotation, "__args__", ()):
            walk(part)

    walk(kind)
    for model in seen:
        if model not in but:
            model.model_config = {**model.model_config, "extra": "forbid"}
    for model in seen:
        model.model_rebuild(force=True)
    return pydantic.TypeAdapter(kind)


def strictly(adapter, value):
    return adapter.validate_json(json.dumps(value), strict=True)
