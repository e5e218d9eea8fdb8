// A session to be learned with training: pictures by class.
import { isBusy } from "./api.js";
import { learn, mayChange } from "./change.js";
import { $, fail, make, toast } from "./dom.js";
import { nearName } from "./naming.js";
import { say } from "./words.js";

const groups = []; // { label, pictures: [{ file, url }], node }
let active = null;

function addGroup(label = "") {
  const group = { label, pictures: [] };
  const name = make("input", { value: label, ariaLabel: say("group_name"), placeholder: say("group_name") });
  name.setAttribute("list", "classes");
  name.onchange = () => suggest(name);
  name.oninput = () => ((group.label = name.value.trim()), paint());
  const drop = make("button", { type: "button", className: "quiet round", onclick: () => dropGroup(group) }, "×");
  group.node = make("section", { className: "group" }, make("div", { className: "bar" }, name, drop), make("div", { className: "strip" }));
  group.node.addEventListener("focusin", () => mark(group));
  group.node.onclick = () => mark(group);
  groups.push(group);
  $("groups").append(group.node);
  mark(group);
  return group;
}

function suggest(name) {
  const label = nearName(name.value.trim());
  if (label === undefined) return;
  const use = () => ((name.value = label), name.oninput(), name.focus());
  toast(say("meant", { label }), { action: say("meant_use", { label }), does: use });
}

function mark(group) {
  active = group;
  for (const one of groups) one.node.classList.toggle("active", one === group);
}

function dropGroup(group) {
  group.node.remove();
  for (const { url } of group.pictures) URL.revokeObjectURL(url);
  groups.splice(groups.indexOf(group), 1);
  if (active === group) active = groups.at(-1) || null;
  paint();
  $("group_new").focus();
}

export function addLesson(found) {
  const several = new Set(found.map(({ folder }) => folder)).size > 1;
  for (const { file, folder } of found) {
    const label = several || !active ? folder : "";
    const group = groups.find((one) => label && one.label === label) || (label || !active ? addGroup(label) : active);
    group.pictures.push({ file, url: URL.createObjectURL(file) });
  }
  paint();
  if (active && !active.label) active.node.querySelector("input").focus();
}

function paint() {
  for (const group of groups) {
    const [bar, strip] = group.node.children;
    bar.lastChild.ariaLabel = say("group_remove", group);
    strip.replaceChildren(...group.pictures.map((picture) => {
      const gone = () => (group.pictures.splice(group.pictures.indexOf(picture), 1), paint());
      const photo = make("img", { src: picture.url, alt: picture.file.name, loading: "lazy" });
      return make("button", { type: "button", onclick: gone, ariaLabel: say("group_drop", picture.file) }, photo);
    }));
  }
  const n = all().length, classes = new Set(all().map(({ label }) => label)).size;
  $("learn").textContent = n ? say("learn_some", { n, classes: say("learn_classes", { n: classes }) }) : say("learn");
  $("learn").disabled = !n || !mayChange() || isBusy();
}

const all = () => groups.flatMap(({ label, pictures }) => pictures.map(({ file }) => ({ file, label })));

async function submit(event) {
  event.preventDefault();
  const unnamed = groups.find((group) => group.pictures.length && !group.label);
  if (unnamed) return unnamed.node.querySelector("input").focus(), toast(say("group_unnamed"), { bad: true });
  const sent = [...groups];
  $("learn").disabled = true;
  try {
    await learn(all(), $("lesson_name").value.trim());
    for (const group of sent) dropGroup(group);
    $("lesson_name").value = "";
  } finally {
    paint();
  }
}

export function startTeach() {
  $("group_new").onclick = () => addGroup().node.querySelector("input").focus();
  $("lesson").onsubmit = (event) => submit(event).catch(fail);
  document.addEventListener("model", paint);
  paint();
}
