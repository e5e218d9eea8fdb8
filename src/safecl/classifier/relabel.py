"""Pictures become another class, or come in, in all of a model: sums, features, tables, evidence, counts, history.

What was added under a wrong label is subtracted there and added where it belongs, so all of these are then as in a
model that was taught so in the first place. What training has made of the labels, such as the tuning, stays.
"""

import copy
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from safecl.classifier.calibrate import KEPT_PER_CLASS, LABELS, recalibrate
from safecl.classifier.enough import accuracy_text
from safecl.classifier.history import BRINGING, after, counts
from safecl.classifier.model import Model
from safecl.classifier.rows import Table, edited
from safecl.classifier.state import Added, State, advance, grams_of, ridge_heads, set_grams
from safecl.errors import NotCorrectable, SafeclError
from safecl.heads.solve import factors_kept
from safecl.lines import counted, naming
from safecl.methods.method import Method
from safecl.streams.labels import Label, sorted_classes

Numbers: TypeAlias = Sequence[int]


class Change:
    """The pictures at ``rows`` (n,) of all that a model has seen become classes ``new`` (n,), −1: were never learned.

    ``method`` has been the model's, and knows the names of new classes. ``gone``: classes that leave in any case;
    others leave with their last picture. ``marks``: hashes of pictures that come in; their rows follow the others.
    """

    def __init__(
        self, model: Model, method: Method, rows: Tensor, new: Tensor, gone: Numbers = (), marks: Numbers = ()
    ) -> None:
        self.model, self.method, self.rows, self.new, self.id = model, method, rows, new, uuid.uuid4().hex[:12]
        self.features: Mapping[str, Tensor] = {}
        self.added, self.taken = list[Added](), list[Added]()
        self.rounded: set[str] = set()  # heads that were given other features than the rest of the method
        said = model.header["history"]
        past = [entry for entry in said if entry["what"] in BRINGING]
        self.sessions = [*(entry["id"] for entry in past), self.id]
        whole = [n for n, entry in enumerate(said) if entry["what"] in ("learn", "merge")]  # these move networks
        self.still = {self.id, *(entry["id"] for entry in said[max(whole, default=0) :])}  # steps since then
        sizes = [sum(count for _, count in entry["classes"]) for entry in past]
        # The last session that says anything of β, which takes five pictures.
        self.judged = [None, *(entry["id"] for entry, count in zip(past, sizes, strict=True) if count >= 5)][-1]
        named = {label for entry in said for label in (*entry["new"], *(label for label, _ in entry["classes"]))}
        if sum(sizes) != len(model.state.seen["classes"]) or not named <= set(model.classes):
            raise SafeclError("The model's history tells of other pictures or classes than it knows: use a copy.")
        self.ends = torch.tensor([0, *sizes, len(marks)]).cumsum(dim=0)
        sessions = torch.searchsorted(self.ends, rows, right=True) - 1
        # By session, which of ``rows`` are its pictures, and their positions there.
        self.touched = {
            self.sessions[n]: (here := (sessions == n).nonzero()[:, 0], rows[here] - self.ends[n])
            for n in torch.unique(sessions).tolist()
        }
        more = {"hashes": torch.tensor(marks, dtype=torch.int64), "classes": torch.full((len(marks),), -1)}
        self.seen = {key: torch.cat([model.state.seen[key], own]) for key, own in more.items()}
        self.old, self.classes = self.seen["classes"][rows], self.seen["classes"].index_copy(0, rows, new)
        left = set(self.classes.tolist())
        self.joined, self.gone = gone, sorted({c for c in self.old.tolist() if c >= 0 and c not in left} | set(gone))
        if len(self.gone) == len(method.classes):
            raise SafeclError("These are all pictures that the model has learned; delete its file to start over.")
        # Of a class after the change; −1: none, which is also that of −1.
        numbers = [-1 if c in self.gone else c - sum(g < c for g in self.gone) for c in range(len(method.classes))]
        self.index, self.labels = torch.tensor([*numbers, -1]), list(method.classes)

    def move(self, features: Mapping[str, Tensor]) -> None:
        """Correct the sums of the method, given by network the features (n, d) that it has today of the pictures."""
        method, heads = self.method, ridge_heads(self.method)
        reads = {**{head: (name,) for name, head in method.heads.items()}, **method.reads}
        given = {
            part: method.side_by_side([features[name] for name in reads.get(names[0], names)])
            for part, names in reads.items()
        }
        for name in heads.keys() & given.keys():
            given[name] = self._learned(name, given[name])
        for part, names in method.reads.items():  # features computed once more differ in their last digits
            for head in heads.keys() & given.keys():
                same = reads[head] == names and head not in self.rounded and not {*names} & {*method.moving}
                given[part] = given[head] if same or names == (head,) else given[part]
        given = {part: given[part] for part in method.reads}
        method.correct(given, self.old.to(method.backbone.device), self.new.to(method.backbone.device))
        self.features = {**features, **{name: given[head] for name, head in method.heads.items() if head in given}}

    def _learned(self, name: str, today: Tensor) -> Tensor:
        """The features (n, d) that the pictures had when they were added to a ridge head.

        Noted are pictures that come in, and those that leave a session which is part of the Gram matrix for good.
        """
        state, found = self.model.state, today.clone()
        moved = set(self.method.reads.get(name, ())) & set(self.method.moving)
        for session, (here, places) in self.touched.items():
            record = next((one for one in state.records.get(session, []) if one.head == name), None)
            own = Added(name, today[here.to(today.device)], self.new[here])
            if session == self.id:
                self.added.append(Added.of_memory(self.model.settings.memory, name, own.features, own.targets))
                record, places = self.added[-1], torch.arange(len(here))
            elif name not in self.method.reads:  # what was learned of it has only chosen β
                continue
            if record is not None:
                own = record.only(places.to(record.targets.device))
                found[here.to(found.device)] = own.values.to(found)
                self.rounded |= set() if own.scale is None else {name}
            elif moved and session not in self.still:
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

    @factors_kept()  # the weights and the leave-one-out answers are of the same sums
    def done(self, entry: dict[str, Any]) -> Model:
        """The model after the change, its ``entry`` in the history."""
        model, method, before = self.model, self.method, self.model.state
        records, rows = self._records()
        kept, was = self._kept(before.kept)
        rows |= {f"kept/{key}": value for key, value in was.items()}
        classes, end = self.index[self.classes], int(self.ends[-2])
        seen, was = edited({key: own[:end] for key, own in self.seen.items()}, "classes", classes[:end])
        rows |= {f"seen/{key}": value for key, value in was.items()}
        more = {**self.seen, "classes": classes}
        seen = {key: torch.cat([own, more[key][end:]]) for key, own in seen.items()}
        marks = {*self.seen["hashes"][self.rows].tolist()}
        shown = tuple(one for one in before.thumbnails if one.picture not in marks)
        state = replace(before, records=records, kept=kept, seen=seen, thumbnails=shown)
        added = [*(replace(one, targets=self.index[one.targets]) for one in self.added), *self.taken]
        if any((self.new[here] < 0).any() for session, (here, _) in self.touched.items() if session in state.chain):
            set_grams(method, state)  # otherwise the same sums in the same order come first
        set_grams(method, State(base=grams_of(method), chain=(self.id,), records={self.id: added}))
        for c in reversed(self.gone):
            method.drop_class(c)
            del method.classes[c]
        method.refresh()
        method.eval()
        history, entries = self._history({**entry, "id": self.id})
        said = {**model.standing, "dropped": [[c, model.classes[c]] for c in self.gone], "entries": entries}
        state = advance(state, method, self.id, added, model.settings, said, rows)
        calibration = recalibrate(method, state.kept, state.seen)
        entry = {**history.pop(), "touched": [session for session in self.touched if session != self.id]}
        self.header = after({**model.header, "history": history}, entry, method.classes, calibration)
        self.lost = sum(one.whole for one in state.undo) <= sum(one.whole for one in before.undo)
        return Model(self.header, state)

    def _records(self) -> tuple[dict[str, list[Added]], Table]:
        """(the features that were added to ridge heads, what was changed in them); the evidence for β follows."""
        heads, records, rows = ridge_heads(self.method), dict[str, list[Added]](), Table()
        for session, added in self.model.state.records.items():
            records[session] = []
            here, places = self.touched.get(session, (None, None))
            for i, one in enumerate(added):
                if one.taken:
                    records[session].append(one)
                    continue
                targets = one.targets.cpu().clone()
                if places is not None:
                    targets[places] = self.new[here]
                table, changed = edited(one.table, "targets", self.index[targets])
                rows |= {f"records/{session}/{i}/{key}": value for key, value in changed.items()}
                records[session].append(one.of(table))
                if places is not None:
                    device = self.method.backbone.device
                    was, now = (
                        (each.values.to(device), each.targets.to(device)) for each in (one, records[session][-1])
                    )
                    heads[one.head].correct_evidence(was, now, latest=session == self.judged)
        for one in self.added:
            now = one.values, one.targets.to(one.values.device)
            heads[one.head].correct_evidence((now[0][:0], now[1][:0]), now, latest=True)
        return records, rows

    def _kept(self, kept: Table) -> tuple[Table, Table]:
        """(features to calibrate with: of the same pictures, new ones, others with few of their class; changes)."""
        if not kept:  # the method does not judge itself
            return kept, {}
        marks = self.seen["hashes"][self.rows].tolist()
        new = {(mark, int(old)): int(c) for mark, old, c in zip(marks, self.old, self.new, strict=True)}
        there = set(kept["hashes"].tolist())
        pairs = zip(kept["hashes"].tolist(), kept["targets"].tolist(), strict=True)
        kept, was = edited(kept, "targets", self.index[[new.get((mark, c), c) for mark, c in pairs]])
        count, more = Counter[int](), list[int]()
        for i, mark in enumerate(marks):
            c = int(self.index[self.new[i]])
            if mark not in there and c >= 0 and count[c] < KEPT_PER_CLASS:
                more.append(i)
                there.add(mark)
                count[c] += 1
        names = kept.keys() - set(LABELS)
        if not more or not self.method.leaves_out or not names <= self.features.keys():
            return kept, was
        own = {name: self.features[name][more].to(kept[name]) for name in names}
        own |= {"targets": self.index[self.new[more]], "hashes": torch.tensor([marks[i] for i in more])}
        was = was or {"targets": kept["targets"], "gone": torch.zeros(0, dtype=torch.int64)}
        return {name: torch.cat([rows, own[name]]) for name, rows in kept.items()}, was

    def _history(self, entry: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(the history with the counts of today and the new ``entry``, what it said before, by class index)."""
        past = self.model.header["history"]
        history, gone = [*copy.deepcopy(past), entry], {self.labels[c] for c in self.gone}
        moved = {self.labels[c] for c in (*self.old.tolist(), *self.new.tolist()) if c >= 0} - gone
        for entry in history:
            entry["classes"] = [pair for pair in entry["classes"] if pair[0] not in gone]
            if entry["id"] in self.touched:
                n = self.sessions.index(entry["id"])
                found = Counter(
                    self.labels[c] for c in self.classes[self.ends[n] : self.ends[n + 1]].tolist() if c >= 0
                )
                entry["classes"] = [[label, found[label]] for label in sorted_classes(found)]
        known: set[Label] = set()
        for entry in history:  # a class is new where it comes first
            here = {label for label, _ in entry["classes"]}
            new = {label for label in entry["new"] if label not in moved | gone} | ((moved & here) - known)
            entry["new"] = entry["new"] if new == set(entry["new"]) else list(sorted_classes(new))
            known |= here
        index, entries = {label: c for c, label in enumerate(self.model.classes)}, []
        for number, (was, now) in enumerate(zip(past, history[:-1], strict=True)):
            if was != now:
                said = {"number": number, "classes": [[index[label], count] for label, count in was["classes"]]}
                said["new"] = [index[label] for label in was["new"]]
                entries.append(said)
        return history, entries

    @property
    def said(self) -> str:
        """What else a person should know of what is done, behind a space."""
        told = ""
        if left := [str(self.model.classes[c]) for c in self.gone if c not in self.joined]:
            told += f" No picture is left of {naming(left)}, so {'it is' if len(left) == 1 else 'they are'} gone."
        told += "" if self.method.anchor == "backbone" else " The tuning of the network stays as it is."
        calibration, pictures = self.header["calibration"], counts(self.header)
        if calibration and len(pictures) > 1:
            told += f" Leave-one-out accuracy {accuracy_text(calibration)}, the mean over classes."
        single = [self.labels[c] for c in {*self.new.tolist()} if c >= 0 and pictures.get(self.labels[c]) == 1]
        if single and self.method.leaves_out:
            told += f" With one picture a class has no leave-one-out accuracy: {naming(map(str, single))}."
        if self.lost:
            told += f" {counted(self.model.settings.keep, 'step')} can be rolled back, so the oldest one no longer can."
        return told
