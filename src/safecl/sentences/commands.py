"""The command line: the sentence of each code."""

TABLE = {
    "command.backbones.fetch-what": (
        "Name the backbone to fetch, such as safecl backbones fetch small."
    ),
    "command.backbones.one-thing": (
        "One thing at a time: safecl backbones NAME, --all PART, --measure, or fetch NAME."
    ),
    "command.backbones.none": (
        "There are no weights with {part!r} in their name; safecl backbones --all lists timm's."
    ),
    "command.correct.one-of-two": "Give --label NAME, or --remove: one of the two.",
    "command.data.no-source": "{title} has to come from somewhere: {fetch}",
    "command.data.from-and-download": (
        "A dataset is prepared from what is there or fetched; give --from or --download."
    ),
    "command.data.root-idle": (
        "--root {root} means nothing to {name}: only named datasets are below it; omit it."
    ),
    "command.data.no-stream-setting": (
        "{word!r} is not a setting of the stream, such as stream.unreadable=skip."
    ),
    "command.demo.method": (
        "The demo compares SAFE, RanPAC and fine-tuning; safecl run METHOD runs another method."
    ),
    "command.export.suffix": (
        "Give the {form} file a name that ends in {suffix}, such as {stem}{suffix}."
    ),
    "command.export.no-folder": (
        "There is no folder {pictures}; give one of pictures to compare answers on."
    ),
    "command.export.option-idle": "{option} has no effect on the format {form}; omit it.",
    "command.demo.settings-idle": "Settings have no effect with --serve; omit them.",
    "command.demo.port-idle": "--port has no effect without --serve; give both.",
    "command.run.quiet-and-verbose": "--quiet and --verbose exclude each other; give one of them.",
    "command.info.incomplete": (
        "safecl info {method} is not complete; write safecl info --keys {method} for its settings."
    ),
    "command.word.no-text": (
        "The word {word!a} is not text in this locale; set a UTF-8 one such as LC_ALL=C.UTF-8."
    ),
    "command.inspect.json-and-page": (
        "What a model says of itself is printed or on a page; give --json or --page."
    ),
    "command.learn.no-folder": (
        "There is no folder {folder}; give one that holds a folder of pictures for each class."
    ),
    "command.learn.set-idle": (
        "{model} has its settings already, so --set has no effect on it; omit it."
    ),
    "command.predict.no-picture": (
        "There is no picture to look at; give files or folders, or - for lines of standard input."
    ),
    "command.learn.tune-twice": "Give --tune or --no-tune, not both.",
    "command.predict.exported": (
        "{model} is exported: --explain, --careful and --precision need the model it was made from."
    ),
    "command.predict.trust-idle": (
        "--trust is for exported files (.onnx), and has no effect on {model}; omit it."
    ),
    "command.export-run.unfinished": (
        "{run} holds no finished run; give the folder of one (safecl runs lists them)."
    ),
    "command.out.same-file": "{out} would be written over itself; give another file as --out.",
    "command.sort.link-and-move": "A picture is linked or moved, not both; give --link or --move.",
    "command.quickstart.folder-exists": (
        "{folder} exists already; remove it, or name another: safecl quickstart FOLDER."
    ),
    "command.reproduce.two-folders": (
        "{folder!r} is one folder too many; settings are written key=value."
    ),
    "command.runs.no-folder": "There is no folder {root}; give the folder that holds your runs.",
    "command.runs.none": "There are no runs in {root}; 'safecl run' makes them.",
    "command.serve.same-name": "Two models are called {stem}; give one of the files another name.",
    "command.serve.new-replicas": (
        "{stem} is not there yet, and replicas answer from its file; teach it without --ray first."
    ),
    "command.serve.replicas-idle": "--replicas has no effect without --ray; give both.",
    "command.serve.cannot-listen": "The service cannot listen on {host}, port {port} ({reason}).",
    "command.serve.not-installed": "The service needs {missing}: pip install 'safecl[serve]'.",
    "command.page.force-idle": "--force has no effect without --page; omit it.",
}
