"""Other packages, files and names: the sentence of each code."""

TABLE = {
    "seed.same-numbers": (
        "With this seed {one!r} and {other!r} would draw the same numbers; choose another seed."
    ),
    "package.misfit": (
        "The {what} {name!r} of {package} ({value}) is not {needed}; see docs/extending.md."
    ),
    "package.broken": (
        "The {what} {name!r} of {package} cannot be loaded ({reason}); update that package, or"
        " uninstall it."
    ),
    "package.missing": (
        "{source} is of a run with {packages}, which is not installed here; install it."
    ),
    "package.not-installed": (
        "This needs {package}, which is not installed here; 'pip install safecl' installs it."
    ),
    "file.place.not-writable": "{place} cannot be written ({reason}).",
    "file.not-written": "{path} could not be written ({reason}); what was saved before is intact.",
    "output.folder.missing": "There is no folder {parent}; make it, or put {name} elsewhere.",
    "output.link.dangling": "{path} is a link to a file that is not there; give the file itself.",
    "output.protected": "{path} cannot be written (it is write-protected).",
    "output.no-file": "{path} is {what}; give the name of a file.",
    "output.unreadable": "{path} cannot be read ({strerror}), so it is not replaced.",
    "output.not-ours": "{path} {why}, so it is not replaced; {way}.",
    "number.not-finite": (
        "A number that would be told is not finite; the file may be damaged: use a copy."
    ),
    "name.unknown": "There is no {what} {given!r}; choose one of: {known}",
    "name.unknown.near": "There is no {what} {given!r}; did you mean {near!r}?",
    "folder.link": "{folder} is a link, and would be followed to another folder; delete it.",
    "output.busy": "Another command is changing {path}; wait for it to end.",
    "package.says": "{sentence}",
}
