"""Pydantic's errors as problems of the file: with a line, in the words of the definition, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from spark_jobs.definition.engines import PACKAGES, has_field, sections_in
from spark_jobs.definition.fields import NotJudged, Refusal, Refusals, nearest, shown
from spark_jobs.definition.pipeline import Pipeline
from spark_jobs.definition.yaml_tree import FieldPath, SourceMap
from spark_jobs.errors import Problem

Model = type[BaseModel]

UNNAMED = frozenset({"hopping", "between_events"})
"""Members of unions that no hint offers: they are of another engine, whose definitions are checked before."""


def problems_of(error: ValidationError, root: Model, sources: SourceMap) -> Iterator[Problem]:
    """A problem with its place in the file for each finding of the error. They come one by one: words cost time."""
    for finding in error.errors(include_url=False):
        if finding["type"] == "too_short" and finding["input"]:
            continue  # too short only because its items were refused, which is a finding of its own
        path, parents = _locate(root, finding["loc"])
        for below, what, hint in _explain(finding, path, parents, root):
            yield sources.problem((*path, *below), what, hint)


def _explain(
    finding: ErrorDetails, path: FieldPath, parents: list[Model], root: Model
) -> list[tuple[FieldPath, str, str]]:
    """For each problem: the path below `path`, what is wrong, and what to write instead."""
    kind, given, context = finding["type"], finding.get("input"), finding.get("ctx", {})
    refused = context.get("error")
    if isinstance(refused, NotJudged):
        return []
    if isinstance(refused, Refusals):
        return [(refusal.at, refusal.what, refusal.hint) for refusal in refused.refusals]
    if isinstance(refused, Refusal):
        return [(refused.at, refused.what, refused.hint)]
    hint = _example(path, parents)
    if kind == "extra_forbidden":
        return [((), *(_of_another_engine(path, root) or _explain_unknown(str(path[-1]), parents, root)))]
    if kind == "missing":
        if _is_in_words_of_another_engine(path, given, root):
            return []
        return [((), "is missing", _called_here(path, root) or hint)]
    if kind == "union_tag_not_found":
        tag = _quoted(context["discriminator"])[0]
        choices = _called_here((*path, tag), root) or f"write one of {_choices(parents[-1], path)}"
        return [((tag,), "is missing", choices)]
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        at = (_quoted(context["discriminator"])[0],) if kind == "union_tag_invalid" else ()
        expected = [tag for tag in _quoted(context.get("expected") or context["expected_tags"]) if tag not in UNNAMED]
        value = context["tag"] if kind == "union_tag_invalid" else given
        if issubclass(root, Pipeline) and (here := _called_here((*path, *at, value), root)):
            return [(at, f"does not belong to engine `{root.engine_name}`", here)]
        near = nearest(str(value), expected)
        known = _called_here((*path, *at), root) or f"write one of {', '.join(expected)}"
        choice = f"write `{near}`" if near else known
        return [(at, "is empty" if value is None else f"{shown(value)} is not known", choice)]
    if given is None:
        return [((), "is empty", hint or "write a value, or leave the line out")]
    return [((), *_explain_type(kind, given, finding["msg"], hint))]


def _explain_type(kind: str, given: Any, message: str, hint: str) -> tuple[str, str]:
    if kind == "string_type" and isinstance(given, (int, float)):
        return f"{shown(given)} is not text", f'write it in quotes: "{shown(given).strip("`")}"'
    expected = {
        "string_type": "text",
        "dict_type": "a mapping of names to values",
        "model_type": "a mapping of fields",
        "model_attributes_type": "a mapping of fields",
        "tuple_type": "a list",
        "int_type": "a whole number",
        "bool_type": "true or false",
        "bool_parsing": "true or false",
    }.get(kind)
    if kind in ("too_short", "missing_length"):
        return "is empty", hint or "write at least one entry"
    if expected is None:
        return f"{shown(given)}: {message[0].lower()}{message[1:]}", hint
    return f"{shown(given)} is not {expected}", hint or f"write {expected}"


def _called_here(path: tuple[Any, ...], root: Model) -> str:
    """What the definition's engine calls what other engines have at the path; empty: nobody has written it."""
    return root.elsewhere.get(".".join(map(str, path)), "") if issubclass(root, Pipeline) else ""


def _of_another_engine(path: FieldPath, root: Model) -> tuple[str, str] | None:
    """What is said of a field that another engine's definitions have, or what it is called here; None: it is no such.

    An input of a union has the sections of a definition.
    """
    if not issubclass(root, Pipeline):
        return None
    at = path[3:] if path[:2] == ("history", "of") and len(path) > 3 else path
    here = _called_here(at, root)
    takers = [engine for engine in PACKAGES if has_field(engine, at)]
    if has_field(root.engine_name, at) or not (here or takers):
        return None
    if root.is_default and len(takers) == 1:
        return f"belongs to engine `{takers[0]}`", f"write `engine: {takers[0]}`; {here or 'or leave it out'}"
    return f"does not belong to engine `{root.engine_name}`", here or f"{root.title} has no counterpart; leave it out"


def _is_in_words_of_another_engine(path: FieldPath, section: Any, root: Model) -> bool:
    """Whether what lacks the field at `path` has words of another engine, and the definition does not name its own."""
    written = section if isinstance(section, Mapping) and issubclass(root, Pipeline) and root.is_default else {}
    return any(_of_another_engine((*path[:-1], name), root) for name in written)


def _explain_unknown(name: str, parents: list[Model], root: Model) -> tuple[str, str]:
    model = parents[-1]
    for sibling in _siblings(model, root):
        if name in _fields(sibling):
            if not _has_tag(model):
                return "has a meaning for one of several deployments only", "write `live` as a list: `- name: ...`"
            tag_field = _tag_field(model)
            takers = [_tag(other) for other in _siblings(model, root) if name in _fields(other)]
            return f"does not belong to {tag_field} `{_tag(model)}`", f"it is a field of {', '.join(takers)}"
    near = nearest(name, _fields(model))
    if near and near.startswith(name):
        return "unknown field", f"did you mean `{near}`?"
    homes = [path for path, section in _sections(root) if name in _fields(section) and section is not model]
    homes.sort(key=lambda path: path.startswith("history.of"))  # a union's inputs have the sections of a definition
    if homes:
        return "unknown field", f"it belongs under `{homes[0]}`" if homes[0] else "it belongs at the top, not indented"
    known = ", ".join(_fields(model))
    return "unknown field", f"did you mean `{near}`?" if near else f"the fields here are {known}"


def _locate(root: Model, location: tuple[str | int, ...]) -> tuple[FieldPath, list[Model]]:
    """The path as written in the file (pydantic adds the tag of a union), and the models on the way."""
    path: list[str | int] = []
    parents = [root]
    candidates: dict[str, Model] = {}
    for step in location:
        if candidates:
            parents.append(candidates[str(step)])
            candidates = {}
            continue
        info = _fields(parents[-1]).get(str(step)) or parents[-1].model_fields.get(str(step))
        path.append(info.alias if info and info.alias else step)
        models = list(sections_in(info.annotation)) if info else []
        if len(models) == 1:
            parents.append(models[0])
        elif models:
            candidates = {_tag(model): model for model in models}
    return tuple(path), parents


def _example(path: FieldPath, parents: list[Model]) -> str:
    """What to write, from the example in the field's own description."""
    for model in reversed(parents):
        info = _fields(model).get(str(path[-1])) if path else None
        if info is not None:
            return f"write `{path[-1]}: {_yaml(info.examples[0])}`" if info.examples else ""
    return ""


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {item}" for name, item in value.items()) + "}"
    return str(value)


def _fields(model: Model) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _tag_field(model: Model) -> str:
    """The field whose one possible value distinguishes the members of a union."""
    fields = model.model_fields.items()
    return next(name for name, info in fields if get_origin(info.annotation) is Literal and len(_values(info)) == 1)


def _has_tag(model: Model) -> bool:
    """Whether a field says which member of a union the model is; else it is the kind of value that is written."""
    fields = model.model_fields.values()
    return any(get_origin(info.annotation) is Literal and len(_values(info)) == 1 for info in fields)


def _tag(model: Model) -> str:
    return model.__name__ if not _has_tag(model) else _values(model.model_fields[_tag_field(model)])[0]


def _values(info: FieldInfo) -> tuple[Any, ...]:
    return get_args(info.annotation)


def _sections(root: Model) -> Iterator[tuple[str, Model]]:
    """Every section of the definition with its dotted path; "" is the definition itself."""
    yield "", root
    for name, info in _fields(root).items():
        for model in sections_in(info.annotation):
            for path, section in _sections(model):
                yield f"{name}.{path}".rstrip("."), section


def _siblings(model: Model, root: Model) -> list[Model]:
    """The members of the union that holds the model; empty if no union does."""
    for _, section in _sections(root):
        for info in _fields(section).values():
            members = list(sections_in(info.annotation))
            if len(members) > 1 and model in members:
                return members
    return []


def _choices(parent: Model, path: FieldPath) -> str:
    tags = (_tag(model) for model in sections_in(_fields(parent)[str(path[-1])].annotation))
    return ", ".join(tag for tag in tags if tag not in UNNAMED)


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)
