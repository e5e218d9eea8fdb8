"""A folder that is watched: its class folders are learned, and what lies in its inbox is answered.

Nothing is kept beside the model and the folder: what is learned says the model, what is answered
has left the inbox. So a stop at any instant loses nothing, and the same call goes on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from safecl.atomic import exclusive
from safecl.classifier.answers.sort import folder_names, put
from safecl.classifier.modelfile.history import as_labels, check_not_frozen
from safecl.classifier.modelfile.place import check_path
from safecl.classifier.modelfile.store import ModelFile
from safecl.classifier.seen import learned_by, work_folder
from safecl.engine.progress import Progress
from safecl.errors import Busy, SafeclError
from safecl.lines import naming, shown
from safecl.runtime.answer import Answer, asked
from safecl.streams.labels import Label
from safecl.streams.pictures.decode import decode
from safecl.streams.pictures.find import File, Unread, mark_of, printable, scan
from safecl.streams.pictures.kinds import hidden

if TYPE_CHECKING:
    from safecl.classifier.answers.snapshot import Snapshot
    from safecl.classifier.teach import Lesson

INBOX = "inbox"  # pictures to answer
SORTED = "sorted"  # those that were answered, in a folder for each class
QUEUE = "queue"  # those that a person has to name
OWN = (INBOX, SORTED, QUEUE)  # folders of no class
CHUNK = 64  # pictures that are answered before the first of them is moved
Listing: TypeAlias = dict[File, str]  # the class folder of each file; empty of one to answer


class Told(NamedTuple):
    """What a watched folder tells: sentences, answers by the place of a picture, and lessons."""

    say: Callable[[str], object]
    answer: Callable[[str, Answer], object]
    lesson: Callable[["Lesson", int], object]


class Watch:
    """The folder ``top``, by which the model at ``model`` is taught and asked; one without a model
    makes it of its first two classes.

    ``sure``: the probability from which an answer is trusted; other pictures, and unknown ones, go
    into the queue. ``unknown``: the share of known pictures that may be called unknown.
    """

    def __init__(
        self,
        top: Path,
        model: Path,
        told: Told,
        *,
        sure: float = 0.8,
        unknown: float = 0.05,
        device: Any = "auto",
        progress: Progress | None = None,
    ) -> None:
        if not top.is_dir():
            raise SafeclError("watch.no-folder", folder=printable(top))
        check_path(model)
        self.top = top
        self.path = model.expanduser()
        self.told = told
        self.sure = sure
        self.unknown = unknown
        self.device = device
        self.progress = progress or Progress()
        self._before: Listing = {}
        self._marks: dict[File, int] = {}
        self._whole: set[File] = set()
        self._bad: dict[File, str] = {}  # why files cannot be read, as they are
        self._checked: object = None  # what the class folders and the model were when they were
        self._said: set[str] = set()  # in the last look
        self._saying: set[str] = set()
        self._now: Snapshot | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile no other process watches the folder."""
        lock = self.top / ".safecl-watch.lock"
        busy = Busy("watch.busy", folder=printable(self.top))
        with exclusive(lock, busy, printable(self.top), keep=False):
            (self.top / INBOX).mkdir(exist_ok=True)
            yield

    @property
    def classes(self) -> list[Label]:
        """Those of the model that answered last."""
        return [] if self._now is None else self._now.known

    def look(self) -> int:
        """Learn and answer what has not changed since the last look; gives how many pictures."""
        self._saying = set()
        listing = self._listed()
        before = self._before
        self._before = listing
        self._bad = {file: why for file, why in self._bad.items() if file in listing}
        self._whole &= listing.keys()
        self._marks = {file: mark for file, mark in self._marks.items() if file in listing}
        taught = {file: label for file, label in listing.items() if label}
        asking = [file for file, label in listing.items() if not label and file in before]
        done = 0
        # somebody may be copying a folder: a session is what lies there when they are done
        if taught and taught == {file: label for file, label in before.items() if label}:
            done += self._tried_to(self._learn, taught)
        done += self._tried_to(self._answer, asking)
        for why in self._bad.values():
            self._tell(why)
        self._said = self._saying
        return done

    def _listed(self) -> Listing:
        found: Listing = {}
        try:
            for folder in sorted(entry for entry in self.top.iterdir() if entry.is_dir()):
                if hidden(folder.name) or folder.name in (SORTED, QUEUE):
                    continue
                label = "" if folder.name == INBOX else folder.name
                found |= {one.file: label for one in scan(folder, Unread())}
        except (OSError, SafeclError) as error:  # a folder that is being moved
            self._tell(str(error))
            return {}
        return found

    def _tried_to(self, do: Callable[[Any], int], what: Any) -> int:
        try:
            return do(what)
        except SafeclError as error:  # at the next look it may go
            self._tell(str(error))
            return 0

    # What is learned

    def _learn(self, taught: Listing) -> int:
        now = (taught, self._version())
        if now == self._checked:  # what a model has learned is read from all of its file
            return 0
        self._checked = now
        model = ModelFile(self.path) if self.path.exists() else None
        news = self._news(model, self._in_one_class(taught))
        if not news:
            return 0
        if model is not None:
            check_not_frozen(model.header)
        elif len({label for _, label in news}) < 2:
            self._tell(f"{printable(self.top)} waits for pictures of a second class.")
            return 0
        from safecl.classifier.classifier import learn_file

        try:
            lesson, classifier = learn_file(
                news,
                self.path,
                self.progress,
                name=printable(self.top.resolve().name),
                again=False,
                device=self.device,
            )
        except Busy:  # another process changes the model
            self._checked = None
            raise
        self._checked = (taught, self._version())
        self.told.lesson(lesson, len(classifier.classes_))
        return lesson.pictures

    def _version(self) -> tuple[int, ...] | None:
        """Another one whenever the model's file is."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _in_one_class(self, taught: Listing) -> Listing:
        """Those that can be read, but for copies of one picture in two classes."""
        classes: dict[int, set[str]] = {}
        for file, label in taught.items():
            if file not in self._marks and file not in self._bad:
                with self._noting(file):
                    self._marks[file] = mark_of(file.digest())
            if file in self._marks:
                classes.setdefault(self._marks[file], set()).add(label)
        for file in taught:
            several = sorted(classes.get(self._marks.get(file, 0), ()))
            if file in self._marks and len(several) > 1:
                where = printable(file.path)
                both = SafeclError("watch.two-classes", picture=where, classes=naming(several))
                self._tell(str(both))
        return {
            file: label
            for file, label in taught.items()
            if file in self._marks and len(classes[self._marks[file]]) == 1
        }

    def _news(self, model: ModelFile | None, given: Listing) -> list[tuple[File, Label]]:
        """What the model has not learned as it is labelled, all of it whole pictures."""
        pairs: list[tuple[File, Label]] = list(given.items())
        stopped = False
        if model is not None:
            labels = as_labels(model.header, given.values())
            known = {} if model.header["frozen"] else learned_by(model)
            pairs = list(zip(given, labels, strict=True))
            news = [
                (file, label)
                for file, label in pairs
                if label not in known.get(self._marks[file], ())
            ]
            # a lesson that was stopped goes on with all that it began with
            stopped = work_folder(self.path.resolve()).is_dir()
            pairs = pairs if stopped else news
        for file, _ in pairs:
            if file not in self._whole and file not in self._bad:
                with self._noting(file):
                    decode(file.read(), printable(file.path))
                    self._whole.add(file)
        return [(file, label) for file, label in pairs if file in self._whole]

    # What is answered

    def _answer(self, files: list[File]) -> int:
        files = [file for file in files if file not in self._bad]
        if not files or not self.path.exists():
            return 0
        now = self._opened()
        there = [path.name for path in (self.top / SORTED).glob("*") if path.is_dir()]
        folders = folder_names(now.known, there)
        done = 0
        for start in range(0, len(files), CHUNK):
            chunk = files[start : start + CHUNK]
            answers = asked(
                chunk, lambda some: now.answers(some, unknown=self.unknown, detail=False)
            )
            for file, answer in zip(chunk, answers, strict=True):
                if isinstance(answer, str):
                    self._bad[file] = f"{printable(file.path)} cannot be read: {answer}."
                    continue
                sure = answer.probability is not None and answer.probability >= self.sure
                trusted = sure and not answer.unknown
                place = self.top / SORTED / folders[answer.label] if trusted else self.top / QUEUE
                self.told.answer(put(file.path, place, "move"), answer)
                done += 1
        return done

    def _opened(self) -> "Snapshot":
        """The model as it is in its file now."""
        from safecl.classifier.answers.snapshot import Snapshot

        file = ModelFile(self.path)
        if self._now is None or self._now.file.digest != file.digest:
            self._now = Snapshot.open(file, self.device)
        return self._now

    # What is told

    @contextmanager
    def _noting(self, file: File) -> Iterator[None]:
        """A file that cannot be read is left where it is; one that changes is looked at again."""
        try:
            yield
        except SafeclError as error:
            self._bad[file] = str(error)

    def _tell(self, text: str) -> None:
        """Say what is in the way: once as long as it is."""
        if text not in self._said | self._saying:
            self.told.say(shown(text))
        self._saying.add(text)
