// Ways in which pictures are given: dropped, pasted, chosen, photographed, drawn.
import { predict, state } from "./api.js";
import { $, fail, toast } from "./dom.js";
import { say, told } from "./words.js";

const LIVE = 300, EACH = 200, HELD = 400; // ms between two answers, between two pictures, until a button counts as held
const PEN = 24; // pixels of the 280 of the sheet: as bold as print
let take, teach, pasted = 0, photos = 0, drawings = 0, strokes = 0, stream = null, inked = false, opener = null, holding = 0;
const taught = {}; // drawings by name

const SYSTEM = /^(\..*|thumbs\.db|desktop\.ini)$/i; // files that folders hold and nobody has put there

// Files become [{ file, folder }]; folder: the name of the one that the file lies in, or "".
function accept(found) {
  const given = found.filter(({ file }) => !SYSTEM.test(file.name));
  const empty = given.filter(({ file }) => !file.size), full = given.filter(({ file }) => file.size);
  const usable = full.filter(({ file }) => !file.type || file.type.startsWith("image/")), other = full.length - usable.length;
  if (usable.length) take(usable);
  if (empty.length) toast(say("empty_file", { n: empty.length, name: empty[0].file.name }), { bad: true });
  if (usable.length && other) toast(say("left_out", { n: other }));
  else if (!usable.length && !empty.length && found.length) toast(say("no_picture"), { bad: true });
}

const chosen = (files) => accept([...files].map((file) => ({ file, folder: file.webkitRelativePath.split("/").at(-2) || "" })));

async function entries(entry, folder = "") {
  if (entry.isFile) return [{ file: await new Promise((done, failed) => entry.file(done, failed)), folder }];
  const reader = entry.createReader(), all = [];
  for (let some; (some = await new Promise((done, failed) => reader.readEntries(done, failed))).length; ) all.push(...some);
  return (await Promise.all(all.map((one) => entries(one, entry.name)))).flat();
}

function dropped(event) {
  event.preventDefault();
  document.body.classList.remove("over");
  const { items, files } = event.dataTransfer;
  const found = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean); // before anything is awaited
  if (!found.length) return chosen(files);
  Promise.all(found.map((entry) => entries(entry))).then((all) => accept(all.flat()), fail);
}

function paste(event) {
  const files = [...event.clipboardData.files].filter((file) => file.type.startsWith("image/"));
  if (!files.length) return;
  event.preventDefault();
  accept(files.map((file) => ({ file: new File([file], say("pasted_name", { n: ++pasted }), { type: file.type }), folder: "" })));
}

function panel(name, open) {
  $(name).hidden = !open;
  $(`${name}_open`).ariaExpanded = String(open);
}

export const choose = () => $("files").click();

// where: the element that the camera is shown in.
export async function photograph(where) {
  opener = document.activeElement;
  where.append($("camera"));
  $("camera_said").textContent = "";
  $("shoot").textContent = say(location.hash === "#teach" ? "shoot_hold" : "shoot");
  if (stream) return $("shoot").focus();
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    return toast(say("camera_no", { why: error.message }), { bad: true });
  }
  panel("camera", true);
  $("video").srcObject = stream;
  $("shoot").focus();
  live();
}

export function stopCamera() {
  release();
  for (const track of stream?.getTracks() || []) track.stop();
  stream = null;
  panel("camera", false);
  $("give").append($("camera"));
}

function closeCamera() {
  stopCamera();
  opener?.focus();
}

async function frame() {
  const { videoWidth: width, videoHeight: height } = $("video");
  if (!width) return null;
  const sheet = new OffscreenCanvas(width, height);
  sheet.getContext("2d").drawImage($("video"), 0, 0);
  return sheet.convertToBlob({ type: "image/jpeg", quality: 0.92 });
}

// What the camera sees is answered while it is on, where there is a model that answers.
async function live() {
  for (const own = stream; stream === own; await new Promise((done) => setTimeout(done, LIVE))) {
    const idle = location.hash === "#teach" || !state.info?.version || document.hidden;
    const photo = idle ? null : await frame();
    if (!photo) continue;
    const said = await predict([photo]).then(({ answers }) => told(answers[0]), (error) => error.message);
    if (stream === own) $("camera_said").textContent = said;
  }
}

// Held down, the button takes one picture after the other.
function hold(event) {
  if (location.hash !== "#teach" || event.button) return;
  release();
  holding = setTimeout(() => (holding = setInterval(() => shoot().catch(fail), EACH)), HELD);
}

function release() {
  clearInterval(holding); // clears a timeout as well
  holding = 0;
}

async function shoot() {
  const photo = await frame();
  if (!photo) return;
  accept([{ file: new File([photo], say("photo_name", { n: ++photos }), { type: photo.type }), folder: "" }]);
}

export function openDraw() {
  panel("draw", true);
  clearSheet();
  $("draw_name").focus();
}

function clearSheet() {
  const pen = $("sheet").getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, 280, 280);
  Object.assign(pen, { lineWidth: PEN, lineCap: "round", lineJoin: "round", strokeStyle: "#111" });
  inked = false;
  strokes++;
  $("draw_said").textContent = say("draw_start");
}

const drawing = () => new Promise((done) => $("sheet").toBlob(done));

async function recognise() {
  if (!state.info?.version) return; // nobody answers yet
  const stroke = ++strokes; // an answer that comes after the next stroke, or after clearing, is not shown
  try {
    const { answers } = await predict([await drawing()]);
    if (inked && stroke === strokes) $("draw_said").textContent = told(answers[0]);
  } catch (error) {
    $("draw_said").textContent = error.message;
  }
}

function startSheet() {
  const sheet = $("sheet"), pen = sheet.getContext("2d");
  const at = ({ offsetX, offsetY }) => [(offsetX * 280) / sheet.clientWidth, (offsetY * 280) / sheet.clientHeight];
  sheet.onpointerdown = (event) => {
    sheet.setPointerCapture(event.pointerId);
    inked = true;
    pen.beginPath();
    pen.moveTo(...at(event));
    pen.lineTo(...at(event));
    pen.stroke();
  };
  sheet.onpointermove = (event) => {
    if (!event.buttons) return;
    pen.lineTo(...at(event));
    pen.stroke();
  };
  sheet.onpointerup = recognise;
}

async function keep(event) {
  event.preventDefault();
  if (!inked) return;
  const label = $("draw_name").value.trim(), blob = await drawing();
  const file = new File([blob], say("drawing_name", { n: ++drawings }), { type: blob.type });
  if (!label || location.hash === "#teach") return accept([{ file, folder: label }]), clearSheet();
  teach(file, state.info.classes.find((one) => String(one.label) === label)?.label ?? label);
  taught[label] = (taught[label] || 0) + 1;
  clearSheet();
  $("draw_said").textContent = say("draw_told", { n: taught[label], label });
}

export function nameDrawing() {
  const label = $("draw_name").value.trim();
  $("draw_keep").textContent = location.hash === "#teach" ? say("draw_add") : label ? say("draw_teach", { label }) : say("draw_ask");
}

// onFiles([{ file, folder }]); onTaught(file, label): a drawing that was named.
export function startGive(onFiles, onTaught) {
  [take, teach] = [onFiles, onTaught];
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("over");
  });
  document.addEventListener("dragleave", ({ relatedTarget }) => relatedTarget || document.body.classList.remove("over"));
  document.addEventListener("drop", dropped);
  document.addEventListener("paste", paste);
  for (const [button, input] of [["choose", "files"], ["choose_folder", "folder"]]) {
    $(button).onclick = () => $(input).click();
    $(input).onchange = () => (chosen($(input).files), ($(input).value = ""));
  }
  $("camera_open").onclick = () => (stream ? closeCamera() : photograph($("give")));
  $("camera_close").onclick = closeCamera;
  $("shoot").onclick = () => shoot().catch(fail);
  $("shoot").onpointerdown = hold;
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) $("shoot").addEventListener(end, release);
  $("draw_open").onclick = () => ($("draw").hidden ? openDraw() : panel("draw", false));
  $("draw_close").onclick = () => (panel("draw", false), $("draw_open").focus());
  $("draw_clear").onclick = clearSheet;
  $("draw_form").onsubmit = (event) => keep(event).catch(fail);
  $("draw_name").oninput = nameDrawing;
  startSheet();
}
