"""Settings in layers: a preset, what it says for some streams or PETs, and the user's words on
top.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel

from safecl.backbone.settings import short_form as backbone_form
from safecl.errors import SafeclError, unknown
from safecl.methods.catalog import method_settings
from safecl.settings import Settings
from safecl.streams.settings import short_form as stream_form

Values: TypeAlias = dict[str, Any]
# groups of several kinds, and the key that says which
TAGS = {
    "method": "name",
    "pet": "kind",
    "stream": "kind",
}
VARIANTS = "variants"


def short_form(group: str, value: Any) -> Any:
    """What a bare word means to a group: ``pet: ssf`` is short for ``pet: {kind: ssf}``, and the
    like.
    """
    if not isinstance(value, str):
        return value
    own = {"stream": stream_form, "backbone": backbone_form}.get(group)
    return own(value) if own else {TAGS[group]: value} if group in TAGS else value


@cache
def method_groups() -> frozenset[str]:
    """Groups that several of our methods have (PET, ridge head), which can be written without
    ``method.`` in front.
    """
    found = Counter(
        name
        for settings in method_settings().own.values()
        for name, field in settings.model_fields.items()
        if models(field.annotation)
    )
    return frozenset(name for name, methods in found.items() if methods > 1)


def models(annotation: Any) -> list[type[BaseModel]]:
    """The settings classes that an annotation allows."""
    if isinstance(annotation, type):
        if issubclass(annotation, Settings):
            return [*annotation.kinds()]
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in get_args(annotation) for model in models(part)]


def method_name(values: Mapping[str, Any]) -> str:
    """The method that canonical values choose; safe if they do not say."""
    method = values.get("method", {})
    return str(method.get("name", "safe") if isinstance(method, dict) else method)


def with_default_kinds(name: str, method: Values) -> Values:
    """The settings of the method ``name``; a group without its kind gets the default one:
    ``pet.bottleneck=4``.
    """
    if name not in method_settings():
        raise unknown("method", name, method_settings())
    fields = method_settings()[name].model_fields
    found = {**method, "name": name}
    for group in TAGS.keys() & found.keys() & fields.keys():
        if isinstance(found[group], dict):
            tag = TAGS[group]
            found[group] = {tag: getattr(fields[group].default, tag), **found[group]}
    return found


def canonical(values: Mapping[str, Any]) -> Values:
    """Without short forms, and with the groups of a method inside it."""
    found = {group: short_form(group, value) for group, value in values.items()}
    inside = {group: found.pop(group) for group in method_groups() if group in found}
    method = found.get("method", {})
    if isinstance(method, dict) and (inside or "method" in found):
        merged = {key: short_form(key, value) for key, value in method.items()}
        for group, value in inside.items():
            both = isinstance(value, dict) and isinstance(merged.get(group), dict)
            merged[group] = {**merged[group], **value} if both else value
        found["method"] = merged
    return found


def overlay(base: Values, top: Values) -> Values:
    """``top`` over ``base``, without what ``base`` says of another named kind; a method keeps the
    groups it has too.
    """
    values = dict(base)
    for key, value in top.items():
        old = values.get(key)
        if not isinstance(value, dict) or not isinstance(old, dict):
            values[key] = value
            continue
        tag = TAGS.get(key)
        if tag is not None and tag in value and value[tag] != old.get(tag, value[tag]):
            kept = method_settings().get(str(value[tag])) if key == "method" else None
            fields = () if kept is None else method_groups() & kept.model_fields.keys()
            old = {group: old[group] for group in fields if group in old}
        values[key] = overlay(old, value)
    return values


def apply_variants(base: Values, given: Values) -> Values:
    """``base`` with those of its variants that fit what is chosen; ``given`` goes on top later, and
    chooses too.

    A preset's ``variants`` is a list of settings with a ``when``: ``{when: {stream: cifar100}, pet:
    adapter}``. One may fit because of what another has set; one whose value would be lost under
    another kind that is chosen is refused.
    """
    base = dict(base)
    for variant in base.pop(VARIANTS, []):
        if not isinstance(variant, dict) or not isinstance(variant.get("when"), dict):
            raise SafeclError("preset.variant.no-when")
        chosen = _chosen(overlay(base, given))
        wanted = {
            key: value if isinstance(value, list) else [value]
            for key, value in variant["when"].items()
        }
        if not all(chosen.get(key) in values for key, values in wanted.items()):
            continue
        change = canonical({key: value for key, value in variant.items() if key != "when"})
        base = overlay(base, change)
        parts = _kinds(change)
        result = _kinds(overlay(base, given))
        if "method" not in wanted:  # it is of the base's own method
            del parts["method"]
        for group, set_here in parts.items():
            found = result[group]
            tag = TAGS[group]
            lost = sorted(set_here.keys() - found.keys())
            if lost and found and tag not in set_here:
                raise SafeclError(
                    "preset.variant.dropped",
                    group=group,
                    lost=lost[0],
                    tag=tag,
                    kind=found[tag],
                    value=set_here[lost[0]],
                )
    return base


def _group(values: Values, key: str) -> Values:
    """A group of settings; empty where it is not given as one."""
    found = values.get(key)
    return found if isinstance(found, dict) else {}


def _kinds(values: Values) -> dict[str, Values]:
    """What is set of the method, the PET and the stream."""
    method = _group(values, "method")
    return {"method": method, "pet": _group(method, "pet"), "stream": _group(values, "stream")}


def _chosen(values: Values) -> dict[str, Any]:
    """What a variant can depend on: stream, backbone, method and PET by name."""
    _, pet, stream = _kinds(values).values()
    named = stream.get("name") if stream.get("kind") == "dataset" else stream.get("kind", "glyphs")
    backbone = _group(values, "backbone").get("name")
    return {
        "method": method_name(values),
        "stream": named,
        "backbone": backbone,
        "pet": pet.get("kind"),
    }
