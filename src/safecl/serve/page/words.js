// Every word of the page. {name} is filled in; of two forms the first is for n = 1.
export const words = {
  // around
  skip: "Skip to the pictures",
  views: "Views",
  model: "Model",
  version: "v {version}",
  updated: "v {version}, new at {time}",
  tab_pictures: "Pictures",
  tab_teach: "Teach",
  tab_knows: "What it knows",
  tab_history: "History",
  theme_light: "Switch to light",
  theme_dark: "Switch to dark",
  close: "Close",
  cancel: "Cancel",
  enter: "Enter",
  token: "Token",
  only_answers: "This model only answers here: it is frozen, or your token may not change it.",

  // giving pictures
  give: "Give pictures",
  drop_lead: "Drop or paste pictures anywhere on this page.",
  drop_more: "They go to your own service and nowhere else.",
  teach_to: "They are added to the class that is marked below. A folder of folders makes one class of each.",
  choose: "Choose pictures",
  choose_folder: "Choose a folder",
  camera: "Camera",
  camera_picture: "What the camera sees",
  camera_no: "The camera cannot be used: {why}",
  shoot: "Take a picture",
  photo_name: "photo {n}",
  pasted_name: "pasted picture {n}",
  draw: "Draw",
  sheet: "Sheet to draw on with mouse, pen or finger",
  draw_name: "Its name, to teach it",
  draw_ask: "Ask",
  draw_teach: "Teach {label}",
  draw_add: "Add",
  draw_more: "Draw your own sign three times under one name, and it is known.",
  draw_start: "Draw a character.",
  draw_told: ["{n} drawing of {label} taught.", "{n} drawings of {label} taught."],
  drawing_name: "drawing {n}",
  clear: "Clear",

  // answers
  grid: "Pictures and answers",
  grid_hint: "Click an answer that is wrong, or press Enter, and name the right class. The ? at the top lists all keys.",
  count: ["{n} picture", "{n} pictures"],
  count_chosen: "{chosen} of {n} selected",
  next: "What to label next",
  next_done: ["The picture to label first is now in front.", "The {n} pictures to label first are now in front, by worth."],
  next_none: "Nothing here is left to label.",
  next_place: "number {n} to label",
  select: "Select {name}",
  select_all: "Select all",
  clear_all: "Remove all",
  asking: "Looking …",
  sure: "{percent} sure",
  unsure: "too few pictures to say how sure",
  unknown: "Unknown",
  most_like: "most like {label}",
  told: "{label}, {percent}",
  told_bare: "{label}",
  told_unknown: "unknown, most like {label}",
  answer_wrong: ". Correct it.",
  waiting: "learning …",
  learned: "learned",
  learned_as: "learned as {label}",
  taken_out: "taken out",
  still_says: "still answers {label}",

  // naming
  naming_one: "What is it?",
  naming_many: "What are these {n}?",
  naming_hint: "Type a class, known or new",
  new_class: "New class “{label}”",
  meant: "Did you mean “{label}”?",
  meant_use: "Use “{label}”",

  // a closer look
  heat: "What it looked at",
  heat_for: "for",
  heat_alt: "What speaks for {label} in this picture",
  heat_wait: "Drawing the heat map …",
  opinions: "Who says what",
  opinion_slow: "slow learner",
  opinion_fast: "fast learner",
  opinion_answer: "answer",
  opinion_weight: "counts {weight}",
  unknown_long: "It looks unlike everything learned. The shares below only compare the classes it knows.",
  correct: "Correct …",
  take_out: "Take out what was learned from it",

  // changes
  change_gave: ["{n} picture learned as {label}.", "{n} pictures learned as {label}."],
  change_some: ["{n} picture learned.", "{n} pictures learned."],
  change_out: ["{n} picture taken out.", "{n} pictures taken out."],
  change_learned: ["Learned a session of {n} picture.", "Learned a session of {n} pictures."],
  undo: "Undo",
  undone: "Undone: the model is as it was before.",
  undo_unsent: "Taken back before it was sent.",
  undo_none: "There is nothing to undo here; see History.",
  undo_changed: "The model has changed since; roll back in History.",

  // jobs
  job: "Work in progress",
  progress: "Progress",
  stop: "Stop",
  stopped: "Stopped; the model is as it was.",
  job_learn: "Learning",
  job_correct: "Correcting",
  job_rollback: "Rolling back",
  job_queue: "Ordering",
  job_waiting: "{what}: waiting for its turn",
  job_running: "{what}: {percent}",
  job_left: "{what}: {percent}, about {time} left",
  seconds: "{n} s",
  minutes: "{n} min",

  // teaching
  teach_head: "Teach a session",
  teach_lead: "Give pictures class by class, then let it learn them together. This trains the network and takes a minute or more; a single correction among the pictures takes seconds.",
  group_new: "Another class",
  group_name: "Name of the class",
  group_remove: "Remove the class {label}",
  group_drop: "Remove {name}",
  group_unnamed: "Every class needs a name.",
  lesson_name: "Name of the session (optional)",
  learn: "Learn",
  learn_some: ["Learn {n} picture of {classes}", "Learn {n} pictures of {classes}"],
  learn_classes: ["{n} class", "{n} classes"],

  // what it knows
  fact_classes: "classes",
  fact_pictures: ["picture learned", "pictures learned"],
  fact_accuracy: "expected accuracy",
  fact_range: "{low} to {high} of new pictures, with 95 % confidence",
  fact_file: "file",
  fact_network: "{method} on {backbone}",
  classes: "Classes",
  classes_lead: "Judged by leaving each learned picture out and asking for it. The bar spans the 95 % interval; the line is the estimate.",
  column_class: "class",
  column_pictures: "pictures",
  column_accuracy: "right",
  column_enough: "enough?",
  judged: "{right} of {judged}",
  not_judged: "cannot be judged yet",
  interval: "{low} to {high}",
  enough_yes: "enough",
  enough_little: "more would help little",
  enough_more: "more would help, about {points} points",
  enough_more_some: "more would help",
  confusions: "Mixed up",
  confused: ["{label} taken for {answer}, once", "{label} taken for {answer}, {n} times"],
  confused_here: "corrected here: {label}, not {answer}",
  confusions_none: "Nothing that it was asked about itself is mixed up.",

  // history
  history_lead: "Newest first. Rolling back restores the model to before the last change.",
  what_learn: "learned",
  what_forget: "forgot",
  what_rename: "renamed",
  what_merge: "merged with",
  what_correct: "corrected",
  what_split: "split",
  what_join: "joined",
  step_new: "new: {labels}",
  rollback: "Roll back",
  rollback_sure: "“{name}” and what was learned with it will be gone from the model.",

  // keys
  keys: "Keys",
  key_arrows: "arrows",
  key_arrows_do: "move between pictures; with Shift select on the way",
  key_enter: "Enter, or letters",
  key_enter_do: "name the right class",
  key_digits: "1 … 9",
  key_digits_do: "one of the nearest classes; 1 confirms the answer",
  key_zero: "0",
  key_zero_do: "look closer: heat map, slow and fast opinion",
  key_space: "Space, Ctrl-A, Esc",
  key_space_do: "select one, all, none",
  key_delete: "Delete",
  key_delete_do: "remove from the page; the model keeps what it learned",
  key_undo: "Ctrl-Z",
  key_undo_do: "undo the last change",

  // faults
  fault: "The model answers as before, because its file cannot be read: {why}",
  gone: "The service does not answer; is it still running?",
  odd: "The service answered with {status}.",
  no_picture: "None of these is a picture.",
};

export function say(key, values = {}) {
  let text = words[key];
  if (Array.isArray(text)) text = text[values.n === 1 ? 0 : 1];
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

export function percent(share) {
  return share > 0.995 && share < 1 ? ">99 %" : `${Math.round(100 * share)} %`;
}

// "unknown, most like cat" has no percentage: it would be one among the known classes.
export function told(answer) {
  if (answer.error) return answer.error;
  if (answer.unknown) return say("told_unknown", answer);
  return answer.probability == null
    ? say("told_bare", answer)
    : say("told", { label: answer.label, percent: percent(answer.probability) });
}
