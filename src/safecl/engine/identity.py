"""What a run is, and whether two are the same one: its settings, its data and its weights."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

from safecl.lines import naming
from safecl.settings import flatten

if TYPE_CHECKING:  # both bring torch; names of folders are needed without it
    from safecl.backbone.backbone import Backbone
    from safecl.streams.stream import Stream

Identity: TypeAlias = dict[str, Any]
FILE = "fingerprint.json"  # in a run's folder
# no result depends on them
FREE = {
    "preset",
    "device",
    "stream.cache",
    "train.save_seconds",
    "train.graphs",
}
PLACES = {"stream.path", "stream.root"}  # the pictures themselves are compared, wherever they are
# of a session, and what their pictures are
PARTS = {
    "train": "training",
    "validation": "validation",
    "test": "test",
}


def identity(settings: Mapping[str, Any], backbone: "Backbone", stream: "Stream") -> Identity:
    """JSON: what ``settings`` decide, the backbone's weights by hash, each session's classes,
    counts and pictures.
    """
    return of_parts(settings, backbone, data_of(stream))


def data_of(stream: "Stream") -> dict[str, Any]:
    """What is read, and in which views: of a stream that a program made, no setting says so."""
    # which is the backbone's
    views = {key: value for key, value in asdict(stream.transform).items() if key != "size"}
    return {"protocol": stream.protocol, "views": views, "sessions": stream.fingerprint()}


def of_parts(
    settings: Mapping[str, Any], backbone: "Backbone", data: Mapping[str, Any]
) -> Identity:
    """The same from what ``data_of`` gives."""
    weights = {"name": backbone.name, "size": backbone.size, "weights": backbone.digest}
    decided = {key: value for key, value in deciding(settings).items() if key not in PLACES}
    # tuples are lists
    again: Identity = json.loads(json.dumps({"settings": decided, "backbone": weights, **data}))
    return again


def deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings on which a result depends, by dotted keys."""
    return {key: value for key, value in flatten(settings).items() if key not in FREE}


def digest(found: Mapping[str, Any]) -> str:
    """A short form of an identity or of settings."""
    return hashlib.blake2b(json.dumps(found, sort_keys=True).encode(), digest_size=12).hexdigest()


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What differs first, in words: settings, weights or data; None where it is the same run."""
    ours = now["settings"]
    theirs = before.get("settings", {})
    keys = [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
    if keys:
        return "other settings: " + naming(
            f"{key}={theirs.get(key)} (now {ours.get(key)})" for key in keys
        )
    old = before.get("backbone", {})
    new = now["backbone"]
    for key, what in (
        ("name", "another backbone than"),
        ("size", "another size of"),
        ("weights", "other weights of"),
    ):
        if old.get(key) != new[key]:
            return f"{what} {new['name']}"
    if before.get("views") != now["views"]:
        return f"other views of the pictures: {before.get('views')}, now {now['views']}"
    if before.get("protocol") != now["protocol"]:
        return f"a stream of the protocol {before.get('protocol')}, not {now['protocol']}"
    return _data_difference(before.get("sessions", []), now["sessions"])


def _data_difference(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> str | None:
    had, has = (
        {label: None for part in data for label in part["classes"]} for data in (before, now)
    )
    news = [label for label in has if label not in had]
    gone = [label for label in had if label not in has]
    if news or gone:
        changes = ((news, "new and not learned"), (gone, "gone"))
        return "other data: " + " and ".join(
            f"{_classes(some)} {what}" for some, what in changes if some
        )
    for number, (old, new) in enumerate(zip(before, now, strict=False), 1):
        if old["classes"] != new["classes"]:
            first, then = (naming(map(str, one["classes"])) for one in (old, new))
            return f"other data: session {number} had the classes {first} and now has {then}"
        for part, name in PARTS.items():
            was = old[part]["pictures"]
            here = new[part]["pictures"]
            if was != here:
                more = (
                    ", and the new ones were not learned" if part == "train" and here > was else ""
                )
                return (
                    f"other data: session {number} had {was} {name} pictures and now has"
                    f" {here}{more}"
                )
            if old[part]["digest"] != new[part]["digest"]:
                return f"other data: {name} pictures of session {number} have changed"
        if old["name"] != new["name"]:
            return f"other data: session {number} was {old['name']!r} and is now {new['name']!r}"
    if len(before) != len(now):
        return f"other data: {len(before)} sessions, and now there are {len(now)}"
    return None


def _classes(labels: list[Any]) -> str:
    return (
        f"the class {labels[0]} is"
        if len(labels) == 1
        else f"the classes {naming(map(str, labels))} are"
    )
