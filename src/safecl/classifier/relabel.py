"""Learned pictures become another class in all of a model: its sums, features, tables, evidence, counts and history.

What was added under a wrong label is subtracted there and added where it belongs, so all of these are then as in a
model that was taught so in the first place. What training has made of the labels, such as the tuning, stays.
"""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from safecl.classifier.calibrate import KEPT_PER_CLASS, LABELS, recalibrate
from safecl.classifier.history import after, renamed
from safecl.classifier.model import Model
from safecl.classifier.rows import Table, edited
from safecl.classifier.state import Added, advance, ridge_heads, set_grams
from safecl.errors import NotCorrectable, SafeclError
from safecl.lines import counted, naming
from safecl.methods.method import Method
from safecl.streams.labels import Label, sorted_classes


class Change:
    """The pictures at ``rows`` (n,) of all that a model has seen become classes ``new`` (n,), −1: were never learned.

    ``method`` has been the model's, and knows the names of new classes. ``gone``: classes that leave in any case;
    others leave with their last picture.
    """

    def __init__(self, model: Model, method: Method, rows: Tensor, new: Tensor, gone: Sequence[int] = ()) -> None:
        self.model, self.method, self.rows, self.new = model, method, rows, new
        self.features: Mapping[str, Tensor] = {}
        self.taken: list[Added] = []
        self.rounded: set[str] = set()  # heads that were given other features than the rest of the method
        past = [entry for entry in model.header["history"] if entry["what"] == "learn"]
        self.sessions = [entry["id"] for entry in past]
        whole = [entry for entry in model.header["history"] if entry["what"] in ("learn", "merge")]
        self.latest = whole[-1]["id"] if whole else None  # a session, or a merge, which moves networks as well
        self.ends = torch.tensor([0, *(entry["pictures"] for entry in past)]).cumsum(dim=0)
        sessions = torch.searchsorted(self.ends, rows, right=True) - 1
        # By session, which of ``rows`` are its pictures, and their positions there.
        self.touched = {
            self.sessions[n]: (here := (sessions == n).nonzero()[:, 0], rows[here] - self.ends[n])
            for n in torch.unique(sessions).tolist()
        }
        classes = model.state.seen.get("classes", torch.zeros(0, dtype=torch.int64))
        self.old, self.classes = classes[rows], classes.index_copy(0, rows, new)
        left = set(self.classes.tolist())
        for entry in model.header["history"]:  # how many pictures of a class a run had is not known
            left |= {model.classes.index(label) for label, _ in entry["classes"] if entry["what"] == "run"}
        self.gone = sorted({c for c in self.old.tolist() if c not in left} | set(gone))
        if len(self.gone) == len(method.classes):
            raise SafeclError("These are all pictures that the model has learned; delete its file to start over.")
        # Of a class after the change; −1: none, which is also that of −1.
        numbers = [-1 if c in self.gone else c - sum(g < c for g in self.gone) for c in range(len(method.classes))]
        self.index, self.labels = torch.tensor([*numbers, -1]), list(method.classes)

    def move(self, features: Mapping[str, Tensor]) -> None:
        """Correct the sums of the method, given by network the features (n, d) that it has today of the pictures."""
        method, heads = self.method, ridge_heads(self.method)
        given = {part: torch.cat([features[name] for name in names], 1) for part, names in method.reads.items()}
        for name in heads.keys() & given.keys():
            given[name] = self._learned(name, given[name])
        for part, networks in method.reads.items():  # features computed once more differ in their last digits
            same = next((name for name in given.keys() & heads.keys() if method.reads[name] == networks), None)
            if same is not None and same not in self.rounded and not set(networks) & set(method.moving):
                given[part] = given[same]
        method.correct(given, self.old.to(method.backbone.device), self.new.to(method.backbone.device))
        self.features = {**features, **{name: given[head] for name, head in method.heads.items() if head in given}}

    def _learned(self, name: str, today: Tensor) -> Tensor:
        """The features (n, d) that the pictures had when they were added to a ridge head.

        Pictures that leave a session which is part of the Gram matrix for good are noted, to be subtracted.
        """
        state, found = self.model.state, today.clone()
        moved = set(self.method.reads[name]) & set(self.method.moving)
        for session, (here, places) in self.touched.items():
            record = next((one for one in state.records.get(session, []) if one.head == name), None)
            own = Added(name, today[here.to(today.device)], self.new[here])
            if record is not None:
                own = record.only(places.to(record.targets.device))
                found[here.to(found.device)] = own.values.to(found)
                self.rounded |= set() if own.scale is None else {name}
            elif moved and session != self.latest:
                raise NotCorrectable(
                    f"The {naming(moved)} learner has moved on since these pictures were learned, and their features "
                    "are no longer kept: only pictures of sessions that can be rolled back can be corrected here. A "
                    "model made with --memory features corrects them all."
                )
            leaving = (self.new[here] < 0).to(own.targets.device)
            if leaving.any() and session not in state.chain:
                out = own.only(leaving)
                self.taken.append(replace(out, targets=torch.full_like(out.targets, -1)))
        return found

    def done(self, entry: dict[str, Any], name: tuple[Label, Label] | None = None) -> Model:
        """The model after the change, its ``entry`` in the history; ``name``: a class, and what it is called then."""
        model, method, before = self.model, self.method, self.model.state
        records, rows = self._records()
        kept, seen = before.kept, before.seen
        if seen:
            seen, was = edited(seen, "classes", self.index[self.classes])
            rows |= {f"seen/{key}": value for key, value in was.items()}
        if kept:
            kept, was = self._kept(kept)
            rows |= {f"kept/{key}": value for key, value in was.items()}
        marks = {*before.seen["hashes"][self.rows].tolist()} if seen else {}
        shown = tuple(one for one in before.thumbnails if one.picture not in marks)
        state = replace(before, records=records, kept=kept, seen=seen, thumbnails=shown)
        chain = replace(state, chain=(*state.chain, entry["id"]), records={**records, entry["id"]: self.taken})
        set_grams(method, chain if self.taken else state)
        for c in reversed(self.gone):
            method.drop_class(c)
            del method.classes[c]
        method.refresh()
        method.eval()
        history, entries = self._history()
        said = {**model.standing, "dropped": [[c, model.classes[c]] for c in self.gone], "entries": entries}
        said["names"] = [] if name is None else [[model.classes.index(name[0]), name[0]]]
        state = advance(state, method, entry["id"], self.taken, model.settings, said, rows)
        calibration = recalibrate(method, state.kept, state.seen)
        entry = {**entry, "touched": list(self.touched)}  # sessions
        header = after({**model.header, "history": history}, entry, method.classes, calibration)
        return Model(header if name is None else renamed(header, *name, told=False), state)

    def _records(self) -> tuple[dict[str, list[Added]], Table]:
        """(the features that were added to ridge heads, what was changed in them); the evidence for β follows."""
        heads, records, rows = ridge_heads(self.method), dict[str, list[Added]](), Table()
        for session, added in self.model.state.records.items():
            records[session] = []
            here, places = self.touched.get(session, (None, None))
            for i, one in enumerate(added):
                targets = one.targets.cpu().clone()
                if places is not None:
                    targets[places] = self.new[here]
                table, changed = (one.table, {}) if one.taken else edited(one.table, "targets", self.index[targets])
                rows |= {f"records/{session}/{i}/{key}": value for key, value in changed.items()}
                records[session].append(one.of(table))
                if places is not None:
                    device = self.method.backbone.device
                    was, now = (
                        (each.values.to(device), each.targets.to(device)) for each in (one, records[session][-1])
                    )
                    heads[one.head].correct_evidence(was, now, latest=session == self.sessions[-1])
        return records, rows

    def _kept(self, kept: Table) -> tuple[Table, Table]:
        """(features to calibrate with: of the same pictures, and of others that have few of their class; changes)."""
        marks = self.model.state.seen["hashes"][self.rows].tolist()
        new, there = dict(zip(marks, self.new.tolist(), strict=True)), set(kept["hashes"].tolist())
        pairs = zip(kept["hashes"].tolist(), kept["targets"].tolist(), strict=True)
        kept, was = edited(kept, "targets", self.index[[new.get(mark, c) for mark, c in pairs]])
        room, more = kept["targets"].bincount(minlength=len(self.index)), list[int]()
        for i, mark in enumerate(marks):
            c = int(self.index[new[mark]])
            if mark not in there and c >= 0 and room[c] < KEPT_PER_CLASS:
                more.append(i)
                there.add(mark)
                room[c] += 1
        names = kept.keys() - set(LABELS)
        if not more or not self.method.leaves_out or not names <= self.features.keys():
            return kept, was
        own = {name: self.features[name][more].to(kept[name]) for name in names}
        own |= {"targets": self.index[self.new[more]], "hashes": torch.tensor([marks[i] for i in more])}
        was = was or {"targets": kept["targets"], "gone": torch.zeros(0, dtype=torch.int64)}
        return {name: torch.cat([rows, own[name]]) for name, rows in kept.items()}, was

    def _history(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(the history with the counts of today, what it said before, by class index)."""
        past = self.model.header["history"]
        history, gone = copy.deepcopy(past), {self.labels[c] for c in self.gone}
        moved = {self.labels[c] for c in (*self.old.tolist(), *self.new.tolist()) if c >= 0} - gone
        for entry in history:
            entry["classes"] = [pair for pair in entry["classes"] if pair[0] not in gone]
            if entry["id"] in self.touched:
                n = self.sessions.index(entry["id"])
                found = Counter(
                    self.labels[c] for c in self.classes[self.ends[n] : self.ends[n + 1]].tolist() if c >= 0
                )
                entry["classes"] = [[label, found[label]] for label in sorted_classes(found)]
                entry["pictures"] = found.total()
            if "confused" in entry:
                entry["confused"] = [pair for pair in entry["confused"] if not gone & set(pair[:2])]
        known: set[Label] = set()
        for entry in history:  # a class is new where it comes first
            here = {label for label, _ in entry["classes"]}
            new = {label for label in entry["new"] if label not in moved | gone} | ((moved & here) - known)
            entry["new"] = entry["new"] if new == set(entry["new"]) else list(sorted_classes(new))
            known |= here
        index, entries = {label: c for c, label in enumerate(self.model.classes)}, []
        for number, (was, now) in enumerate(zip(past, history, strict=True)):
            if was != now:
                said = {"number": number, "classes": [[index[label], count] for label, count in was["classes"]]}
                said["new"] = [index[label] for label in was["new"]]
                said["confused"] = [[index[a], index[b], n] for a, b, n in was.get("confused", [])]
                entries.append(said)
        return history, entries

    @property
    def said(self) -> str:
        """What else a person should know, behind a space."""
        told, betas = "", any(len(head.errors) > 1 for head in ridge_heads(self.method).values())
        if self.gone:
            names = naming(str(self.model.classes[c]) for c in self.gone)
            told += f" No picture is left of {names}, so {'it is' if len(self.gone) == 1 else 'they are'} gone."
        stay = sum(len(here) for session, (here, _) in self.touched.items() if session not in self.model.state.records)
        if stay and betas:
            told += (
                f" How strongly the head is smoothed was chosen with {counted(stay, 'picture')} as they were, because "
                "their session is kept as sums alone; a model made with --memory features corrects that, too."
            )
        return told if self.method.anchor == "backbone" else f"{told} The tuning of the network stays as it is."
