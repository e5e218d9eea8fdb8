"""Answers of models and of exported files: the sentence of each code."""

TABLE = {
    "answer.share.cannot-tell": "The model {reason} Give a larger share, or omit it.",
    "answer.not-finite": (
        "The model answers with a number that is not finite: it is damaged, or too large for this"
        " precision; use a copy of its file, or --device cpu."
    ),
    "answer.share.not-below-one": (
        "The share of known pictures that may be called unknown must be below 1, not {rate}."
    ),
    "answer.sets.cannot-tell": (
        "The model has {there} to judge its sets by, too few for those that hold the class of"
        " {coverage:g} of all pictures; give a smaller share, or teach it more pictures."
    ),
    "answer.sets.no-share": (
        "The share of pictures whose class is in their set must be between 0 and 1, not {coverage}."
    ),
    "audit.nothing-kept": (
        "This model keeps no features by which its pictures could be left out, so they cannot be"
        " audited: it is frozen, or its method cannot judge itself."
    ),
    "exported.not-read": "{path} is not read, because {error}; {trust}.",
    "exported.too-slow": "{path} took more than {seconds:.2g} s for {many}; it was stopped.",
    "exported.cannot-answer": "{path} cannot answer to {many} ({reason}).",
    "exported.no-picture": "A {name} is no picture; give paths, images or arrays.",
    "exported.onnxruntime.missing": (
        "Answers from an ONNX file need onnxruntime: pip install onnxruntime."
    ),
    "exported.device.missing": (
        "This onnxruntime has no {provider} for --device {device}; it has: {there}."
    ),
    "exported.file.missing": (
        "There is no file {path}; 'safecl export MODEL --format onnx -o {path}' makes one."
    ),
    "exported.file.too-large": "{path} is no ONNX file: none has 2.1 GB or more.",
    "exported.file.unreadable": "{path} cannot be read ({strerror}).",
    "exported.file.altered": (
        "{path} is damaged, or safecl has not written it so: {why}; use a copy, or {trust}."
    ),
    "exported.file.damaged": (
        "{path} is no ONNX file that can be read, or it is damaged ({reason})."
    ),
    "exported.file.foreign": (
        "{path} is an ONNX file of another program; give one that 'safecl export' has written."
    ),
    "exported.file.newer": (
        "{path} was written by a newer safecl ({version}); update safecl to read it."
    ),
    "exported.facts.damaged": (
        "What {path} says of itself is damaged ({reason:.300}); export the model again."
    ),
    "exported.trust-idle": (
        "trust is for exported files (.onnx), and has no effect on {path}; omit it."
    ),
    "answer.heat-map.attention": (
        "There are no heat maps on {backbone}: its attention is not that of timm's ViT."
    ),
    "export.int.no-pictures": (
        "int8 changes answers, so it is judged on pictures; give some of yours: --pictures FOLDER."
    ),
    "export.onnx.torch-old": "Exporting as ONNX needs torch 2.9 or newer; here is {version}.",
    "export.onnx.missing": "Exporting as ONNX needs {package}: pip install 'safecl[onnx]'.",
    "export.frozen.calibrated": (
        "A frozen model is calibrated for {output} alone; give --learner {learner} with the model"
        " that it was made from."
    ),
    "push.failed": (
        "{path} could not be pushed to {repo} ({reason}); 'hf auth login' stores a token."
    ),
    "pull.failed": (
        "{source} could not be fetched ({reason}); 'hf auth login' stores a token for what is"
        " private."
    ),
    "pull.kind": "{file} is no model; give a file that ends in {kinds}.",
    "pull.none": "{source} holds no model ({kinds}).",
    "pull.suffix": "Give {out} a name that ends in {suffix}, as the model that was fetched.",
    "pull.several": "{source} holds several models ({names}); name one: USER/NAME/FILE.",
    "push.foreign": (
        "{path} is a weight file of another program; give one that 'safecl export' has written."
    ),
    "queue.count": "A queue has one picture or more, not {count}.",
    "answer.careful.no-mirror": (
        "A careful answer is the mean of those to a picture and its mirror image, and this model"
        " has learned no mirror images; ask it as it is, or teach a new one with --set"
        " ridge.mirror=true."
    ),
    "sort.out.around": (
        "{out} holds the pictures of {folder} themselves; give another folder as --out."
    ),
    "sort.folder.not-empty": "{path} is there already; give a new or empty folder.",
    "sort.not-put": (
        "{picture} could not be put into {folder} ({reason}); the same command goes on."
    ),
    "export.timm.other-weights": (
        "timm's {backbone} has other weights than the tuned learner: {key!r}."
    ),
    "export.timm.other-features": (
        "timm's network gives other features, up to {difference:.2g} of their size; nothing is"
        " written."
    ),
    "export.timm.several-learners": (
        "The model has several learners, and timm takes one network; give --learner {learners}."
    ),
    "export.timm.beside": (
        "{kind} stands beside the weights and cannot be merged into them; ssf, lora and full can."
        " The formats onnx and safetensors take every PET."
    ),
    "answer.heat-map.several": "A heat map is made of one picture; {count} were given.",
    "export.otherwise": (
        "The {precision} file answers otherwise than the model: {agreement:.1f} % of the answers to"
        " {pictures} pictures are the same ({needed:.0f} % are needed{otherwise}), probabilities"
        " differ by up to {difference:.2g}; it was not written{instead}."
    ),
    "export.onnx.no-steps": (
        "{title} cannot be exported as ONNX (its steps depend on the pictures, or ONNX has none of"
        " their kind); --format safetensors takes its weights."
    ),
    "export.onnx.fixed-number": (
        "{title} cannot be exported as ONNX (it fixes how many pictures come); --format safetensors"
        " takes its weights."
    ),
    "export.onnx.too-large": (
        "An ONNX file is made from less than 2.1 GB of float32 weights, and these are"
        " {gigabytes:.1f}; export one learner of several (--learner), or a model on a smaller"
        " backbone."
    ),
}
