"""Runs, sweeps, reproductions and reports: the sentence of each code."""

TABLE = {
    "leaderboard.run.unfinished": (
        "The run {folder} is {state}; a row of the leaderboard needs a finished one."
    ),
    "leaderboard.row.unreadable": "{file} is no row of a leaderboard ({reason}).",
    "leaderboard.folder.missing": (
        "There is no folder {board}; safecl leaderboard add makes it, or name it with --board."
    ),
    "stress.full.no-stream": (
        "The full scale needs pictures of yours: name a stream, such as stream=folder:PATH."
    ),
    "stress.words.idle": "No run has a use for {keys}; omit what is not needed.",
    "command.stress.no-preset": (
        "Name one preset or more, such as safe; safecl methods lists them."
    ),
    "run.stream.open": (
        "{key} has no effect beside a stream that is open; open it with that setting."
    ),
    "run.metrics.edited": (
        "{file} is not as the run wrote it: a line has been lost, added or changed; delete its"
        " folder to run it again."
    ),
    "sweep.ray.missing": (
        "--on ray needs Ray, which is not installed; run: pip install safecl[ray]."
    ),
    "sweep.ray.unreachable": "No Ray cluster could be reached at {address} ({reason}).",
    "sweep.ray.no-machine": "No machine of the Ray cluster has a free core{gpu}.",
    "sweep.folder.other-runs": (
        "{folder} holds runs that are not those of today, and nothing was started:{lines}\n{way}"
    ),
    "sweep.folder.other-pictures": (
        "{one} and {other} in {folder} have other {what}, so they have no mean; {way}."
    ),
    "sweep.plan.empty": "The sweep {source} has no runs; give it a grid, like seed: [0, 1, 2].",
    "sweep.objective.no-validation": (
        "{objective} needs held-out training pictures; set stream.held_out=0.2."
    ),
    "sweep.plan.wrong": "{bad} are wrong, and none was started:{lines}",
    "sweep.plan.idle": "{keys} means nothing to any run of the sweep {source}; take it out.",
    "sweep.plan.form": "{part} in {source} must be {list_of}keys and values.",
    "sweep.grid.form": "grid: {key} in {source} must be a list of values, like seed: [0, 1, 2].",
    "reproduce.seeds.range": "--seeds {repeat} is wrong: the scale {name} has 1 to {count} seeds.",
    "reproduce.probe.no-test": "there is no test picture",
    "reproduce.probe.no-state": (
        "{folder} holds no state of the run; delete the folder and start again."
    ),
    "reproduce.scale.no-folder": (
        "--scale {name} needs the folder of weights and pictures: write it after the target."
    ),
    "reproduce.scale.folder-idle": (
        "{folder} means nothing to --scale {name}: only --scale assets takes a folder."
    ),
    "reproduce.needs": "{start}\n{lines}\n  --skip-missing runs what does not need them.",
    "report.examples.damaged": "{path} is damaged: {file!r} is no picture in that folder.",
    "report.run.missing": (
        "There is no run folder {folder}; give the folder that a run has written."
    ),
    "report.run.none": "{folder} holds no run{why}",
    "report.run.file": "{path} is a file and no run; give the folder of the runs alone: {parent}.",
    "report.file.unreadable": "Cannot read {path}: {strerror}.",
    "report.file.damaged": "{path} is damaged: {message}.",
    "report.folder.not-made": "{folder} cannot be made ({strerror}); choose another place.",
    "state.foreign": "The state file {path} was not written by safecl.",
    "state.damaged": "The state file {path} is damaged or not one of safecl's ({error}).",
    "state.newer": "The state file {path} was written by a newer safecl; update to read it.",
    "state.altered": "The state file {path} is damaged: its contents are not what was written.",
    "state.header.damaged": "The header of the state file {path} is damaged ({error}).",
    "device.missing": (
        "device={device} is not available on this machine; choose device=cpu or device=auto."
    ),
    "device.forked": (
        "A forked process cannot use the GPU of its parent: start it by spawn, or use device=cpu."
    ),
    "tracker.not-installed": (
        "The tracker {name} is not installed; install it with: pip install {name}."
    ),
    "run.examples.not-written": "The examples in {folder} could not be written ({reason}).",
    "train.features.not-finite": (
        "Training diverged in session {session}: features are not finite; lower train.lr."
    ),
    "train.diverged": (
        "Training {name} diverged in session {session} even at a hundredth of train.lr; lower it."
    ),
    "backbone.features.not-finite": (
        "The features of {name} are not finite; check its weights, or set precision=fp32."
    ),
    "run.folder.strangers": (
        "{folder} holds something that is no run, so it is not emptied; choose another folder."
    ),
    "run.folder.not-emptied": "The run folder {folder} cannot be emptied ({reason}).",
    "run.facts.missing": (
        "{folder} holds a run whose {file} is missing or damaged, so what it learned from is"
        " unknown; choose another folder with --folder, or start anew with --fresh."
    ),
    "run.folder.other-run": (
        "{folder} holds {kind} with {found}; choose another folder with --folder, teach a model"
        " instead (safecl learn), or start anew with --fresh, which deletes what was learned."
    ),
    "state.other-run": "The state file {path} belongs to another run.",
    "state.other-version": (
        "The state file {path} is of another version of safecl, which can continue it."
    ),
    "state.lines-differ": (
        "{metrics} is not as it was when {state} was saved: a line of the first {sessions} has been"
        " lost, added or changed."
    ),
    "state.none-left": "{error} No other state is left in {folder}; start anew with --fresh.",
    "state.no-phase": "The state file {path} is no checkpoint of a phase.",
    "state.other-network": "The state file {path} is of another network.",
    "state.other-method": "The state is not one of {title} as it is set here ({reason}).",
    "run.folder.busy": "Another run is using {folder}; wait for it, or choose another folder.",
}
