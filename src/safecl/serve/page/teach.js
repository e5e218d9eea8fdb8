// A session to be learned with training: pictures by class, kept until they are learned.
import { fetched, follow, isBusy, state } from "./api.js";
import { learn, mayChange } from "./change.js";
import { $, announce, fail, make, toast } from "./dom.js";
import { dropDraft, dropPicture, keepPicture, readDraft, readPicture, writeDraft } from "./draft.js";
import { choose, photograph, stopCamera } from "./give.js";
import { nearName } from "./naming.js";
import { percent, say } from "./words.js";

const PAUSE = 300; // ms without a further change until the draft is written
let groups = []; // { label, pictures: [{ file, url, node, kept }], node }
let active = null, model = "", job = "", timer = 0;

function addGroup(label = "") {
  const group = { label, pictures: [] };
  const name = make("input", { value: label, ariaLabel: say("group_name"), placeholder: say("group_name") });
  name.setAttribute("list", "classes");
  name.oninput = () => ((group.label = name.value.trim()), paint());
  const button = (word, className, does) => make("button", { type: "button", className, onclick: () => (mark(group), does()) }, word);
  const eye = make("div"); // where the camera comes
  group.node = make("section", { className: "group" },
    make("div", { className: "bar" }, name, button("×", "quiet round", () => (dropGroup(group), paint(), $("group_new").focus()))),
    make("p", { className: "meant soft", hidden: true }),
    make("div", { className: "row" },
      button(say("group_pictures"), "", choose), button(say("camera"), "", () => photograph(eye)),
      make("span", { className: "soft" })),
    eye, make("div", { className: "strip" }));
  group.node.addEventListener("focusin", () => mark(group));
  group.node.addEventListener("click", () => mark(group));
  group.node.addEventListener("drop", () => mark(group)); // before the page takes what is dropped
  groups.push(group);
  $("groups").append(group.node);
  mark(group);
  return group;
}

// There is always a class to give pictures to; a first lesson needs two.
function fillUp() {
  const least = state.info && !state.info.version ? 2 : 1, first = active;
  while (groups.length < least) addGroup();
  mark(groups.includes(first) ? first : groups[0]);
}

function mark(group) {
  active = group;
  for (const one of groups) one.node.classList.toggle("active", one === group);
}

function dropGroup(group) {
  if (group.node.contains($("camera"))) stopCamera();
  group.node.remove();
  for (const picture of group.pictures) forget(picture);
  groups = groups.filter((one) => one !== group);
  if (active === group) active = groups.at(-1) || null;
}

function forget({ url, kept }) {
  URL.revokeObjectURL(url);
  kept.then(dropPicture);
}

function addPicture(group, file, kept = keepPicture(file)) {
  const picture = { file, url: URL.createObjectURL(file), kept };
  const gone = () => {
    const next = picture.node.nextSibling || picture.node.previousSibling || group.node.querySelector("input");
    group.pictures = group.pictures.filter((one) => one !== picture);
    picture.node.remove();
    forget(picture);
    paint();
    next.focus();
  };
  const photo = make("img", { src: picture.url, alt: "", loading: "lazy" });
  photo.onerror = () => photo.replaceWith(make("span", { className: "soft" }, file.name));
  const name = say("group_drop", file);
  picture.node = make("button", { type: "button", onclick: gone, ariaLabel: name, title: name }, photo);
  group.pictures.push(picture);
  group.node.querySelector(".strip").append(picture.node);
}

export function addLesson(found) {
  const several = new Set(found.map(({ folder }) => folder)).size > 1;
  const blank = (group) => !group.label && !group.pictures.length, named = several || !active || blank(active);
  if (named && found.some(({ folder }) => folder)) for (const group of groups.filter(blank)) dropGroup(group);
  for (const { file, folder } of found) {
    const own = named ? folder : "";
    addPicture(groups.find((one) => own && one.label === own) || (own || !active ? addGroup(own) : active), file);
  }
  fillUp();
  paint();
  announce(say("group_added", { n: found.length }));
  if (active && !active.label && $("camera").hidden) active.node.querySelector("input").focus();
}

function paint() {
  for (const group of groups) {
    const [bar, meant, row] = group.node.children, n = group.pictures.length;
    const name = group.label || say("group_number", { n: groups.indexOf(group) + 1 });
    group.node.ariaLabel = name;
    bar.firstChild.placeholder = group.label ? "" : say("group_hint", { n: groups.indexOf(group) + 1 });
    bar.lastChild.ariaLabel = say("group_remove", { label: name });
    row.lastChild.textContent = n ? say("count", { n }) : say("group_none");
    suggest(group, meant);
  }
  const n = all().length, classes = new Set(all().map(({ label }) => label)).size;
  $("learn").textContent = n ? say("learn_some", { n, classes: say("learn_classes", { n: classes }) }) : say("learn");
  $("learn").disabled = !n || !mayChange() || isBusy();
  $("lesson_more").textContent = !state.info || state.info.version || !n ? "" : classes < 2 ? say("learn_one") : "";
  clearTimeout(timer);
  timer = setTimeout(keep, PAUSE);
}

// A name that is nearly another one's may be a slip.
function suggest(group, meant) {
  const others = groups.slice(0, groups.indexOf(group)).map(({ label }) => label).filter(Boolean);
  const label = group.label && nearName(group.label, others);
  meant.hidden = !label;
  if (!label) return meant.replaceChildren();
  const use = () => {
    const name = group.node.querySelector("input");
    name.value = label;
    name.oninput();
    name.focus();
  };
  meant.replaceChildren(`${say("meant", { label })} `, make("button", { type: "button", onclick: use }, say("meant_use", { label })));
}

const all = () => groups.flatMap((group) => group.pictures.map((picture) => ({ file: picture.file, label: group.label, picture })));

async function keep() {
  const own = model, name = $("lesson_name").value, now = job;
  const read = groups.filter((one) => one.label || one.pictures.length).map(async ({ label, pictures }) =>
    ({ label, ids: (await Promise.all(pictures.map((one) => one.kept))).filter((id) => id !== undefined) }));
  const kept = await Promise.all(read);
  if (own && own === model) await writeDraft(own, kept.length ? { groups: kept, name, job: now } : undefined);
}

function clear() {
  for (const group of [...groups]) dropGroup(group);
  job = $("lesson_name").value = "";
  fillUp();
  paint();
}

// What was given to this model before the page was closed; a lesson of it may have ended meanwhile.
async function restore() {
  const own = state.name, draft = await readDraft(own);
  if (own !== state.name || !draft || all().length) return;
  const files = await Promise.all(draft.groups.map(({ ids }) => Promise.all(ids.map(readPicture))));
  if (own !== state.name || all().length) return;
  for (const group of [...groups]) dropGroup(group);
  draft.groups.forEach(({ label, ids }, i) => {
    const group = addGroup(label);
    ids.forEach((id, at) => files[i][at] && addPicture(group, files[i][at], Promise.resolve(id)));
  });
  $("lesson_name").value = draft.name;
  job = draft.job;
  fillUp();
  paint();
  if (!job) return;
  const then = await fetched(`api/jobs/${job}`).catch(() => null);
  if (!then) job = "";
  else if (own === state.name) await ended(own, follow(then)).catch(fail);
}

// The pictures of a lesson go once it is learned, and stay if it is not.
async function ended(own, lesson) {
  try {
    const end = await lesson;
    if (own !== model) return dropDraft(own);
    clear();
    tell(end);
  } catch (error) {
    if (own === model) job = "";
    throw error;
  } finally {
    paint();
  }
}

function tell({ said, result }) {
  const [low, high] = (result?.interval || []).map(percent);
  const accuracy = low ? say("lesson_accuracy", { low, high }) : "";
  $("lesson_head").textContent = said;
  $("lesson_list").replaceChildren(...[accuracy, ...(result?.warnings || [])].filter(Boolean).map((text) => make("li", {}, text)));
  $("lesson_told").hidden = false;
  $("lesson_ask").focus({ preventScroll: true });
  $("lesson_told").scrollIntoView({ block: "nearest" });
}

async function submit(event) {
  event.preventDefault();
  const unnamed = groups.find((group) => group.pictures.length && !group.label);
  if (unnamed) return unnamed.node.querySelector("input").focus(), toast(say("group_unnamed"), { bad: true });
  const sent = all(), own = model;
  $("learn").disabled = true;
  $("lesson_told").hidden = true;
  stopCamera();
  const began = (given) => ((job = given), keep());
  try {
    await ended(own, learn(sent, $("lesson_name").value.trim(), began));
  } catch (error) {
    if (!error.pictures) throw error;
    unread(sent, error.pictures);
  }
}

// Pictures that the service cannot read stay, and are marked; nothing is learned without a word.
function unread(sent, why) {
  const bad = Object.keys(why).map((place) => sent[place].picture);
  for (const place of Object.keys(why)) {
    const { node, file } = sent[place].picture;
    node.classList.add("unread");
    node.ariaLabel = node.title = say("group_unread", { name: file.name, why: why[place] });
  }
  const leave = () => {
    for (const { node } of bad) if (node.isConnected) node.click();
    $("learn").focus();
  };
  const first = sent[Object.keys(why)[0]];
  const told = { n: bad.length, name: first.file.name, why: Object.values(why)[0], label: first.label };
  toast(say("unread", told), { bad: true, action: say("unread_drop", { n: bad.length }), does: leave });
}

export function startTeach() {
  $("group_new").onclick = () => (addGroup().node.querySelector("input").focus(), paint());
  $("lesson").onsubmit = (event) => submit(event).catch(fail);
  $("lesson_name").oninput = paint;
  document.addEventListener("model", ({ detail }) => {
    if (!detail.same) {
      model = "";
      for (const { url } of all().map(({ picture }) => picture)) URL.revokeObjectURL(url);
      for (const group of groups) group.node.remove();
      [groups, active, job, model] = [[], null, "", state.name];
      $("lesson_told").hidden = true;
      $("lesson_name").value = "";
      restore().catch(fail);
    }
    fillUp();
    paint();
  });
  addEventListener("pagehide", keep);
}
