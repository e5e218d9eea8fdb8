"""What a run is made of, so that it never goes on with other data, weights or settings than it began with."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safecl.backbone.settings import EMBEDDED, FIRST_EDITION
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.settings import flatten
from safecl.streams.stream import Stream

# Where pictures lie and how the machine is used: pictures are compared themselves, and the rest changes no result.
FREE = ("preset", "device", "stream.path", "stream.root", "stream.cache", "train.save_seconds", "train.graphs")
SHOWN = 5  # differences or classes that a sentence names


def fingerprint(method: Method, stream: Stream, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """JSON: the resolved settings, the backbone's weights by hash, and each session's classes, counts and pictures."""
    backbone = method.backbone
    chosen = {key: value for key, value in flatten(settings).items() if key not in FREE}
    found = {
        "settings": {"method.name": method.name, "seed": seed, **chosen},
        "backbone": {"name": backbone.name, "size": backbone.size, "weights": backbone.digest},
        "protocol": stream.protocol,
        "sessions": stream.fingerprint(),
    }
    again: dict[str, Any] = json.loads(json.dumps(found))  # as it will be read: tuples are lists
    return again


def digest(found: Mapping[str, Any]) -> str:
    """A short form, which every state file carries."""
    return hashlib.blake2b(json.dumps(found, sort_keys=True).encode(), digest_size=12).hexdigest()


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Refuse with a sentence on the first kind of difference."""
    found = difference(before, now)
    if found is not None:
        kind = "a finished run" if (folder / "summary.json").exists() else "a run"
        raise SafeclError(
            f"{folder} holds {kind} with {found}; choose another folder with --folder, teach a model instead "
            "(safecl learn), or start anew with --fresh, which deletes what was learned."
        )


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """In words, what differs first: settings, weights or data."""
    if before.get("backbone", {}).get("weights") == FIRST_EDITION != now["backbone"]["weights"]:
        return f"the first edition of {EMBEDDED} (weights {FIRST_EDITION}), which this version no longer has"
    ours, theirs = now.get("settings", {}), before.get("settings", {})
    keys = [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
    if keys:
        named = ", ".join(f"{key}={theirs.get(key)} (now {ours.get(key)})" for key in keys[:SHOWN])
        return f"other settings: {named}" + (f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else "")
    old, new = before.get("backbone", {}), now["backbone"]
    if old != new:
        if old.get("name") != new["name"]:
            return f"the backbone {old.get('name')}, not {new['name']}"
        what = "size" if old.get("size") != new["size"] else "weights"
        return f"another {what} of the backbone {new['name']}" if what == "size" else f"other weights of {new['name']}"
    if before.get("protocol") != now["protocol"]:
        return f"a stream of the protocol {before.get('protocol')}, not {now['protocol']}"
    return _data_difference(before.get("sessions", []), now["sessions"])


def _data_difference(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> str | None:
    had, has = _labels(before), _labels(now)
    news, gone = [label for label in has if label not in had], [label for label in had if label not in has]
    if news or gone:
        told = [f"{_classes(news)} new and not learned"] if news else []
        return "other data: " + " and ".join([*told, *([f"{_classes(gone)} gone"] if gone else [])])
    for number, (old, new) in enumerate(zip(before, now, strict=False), 1):
        if old == new:
            continue
        if old.get("classes") != new["classes"]:
            return (
                f"other data: session {number} had the classes {_names(old.get('classes', []))} and now has "
                f"{_names(new['classes'])}"
            )
        for part, name in (("train", "training"), ("validation", "validation"), ("test", "test")):
            was, here = old.get(part, {}), new[part]
            if was.get("pictures") != here["pictures"]:
                counts = f"{was.get('pictures')} {name} pictures and now has {here['pictures']}"
                more = part == "train" and here["pictures"] > (was.get("pictures") or 0)
                return (
                    f"other data: session {number} had {counts}{', and the new ones were not learned' if more else ''}"
                )
            if was != here:
                return f"other data: {name} pictures of session {number} have changed"
        return f"other data: session {number} was {old.get('name')!r} and is now {new['name']!r}"
    if len(before) != len(now):
        return f"other data: {len(before)} sessions, and now there are {len(now)}"
    return None


def _labels(data: list[dict[str, Any]]) -> dict[Any, None]:
    """Every class once, in order."""
    return dict.fromkeys(label for part in data for label in part.get("classes", []))


def _classes(labels: list[Any]) -> str:
    return f"the class {labels[0]} is" if len(labels) == 1 else f"the classes {_names(labels)} are"


def _names(labels: list[Any]) -> str:
    return ", ".join(map(str, labels[:SHOWN])) + (", …" if len(labels) > SHOWN else "")
