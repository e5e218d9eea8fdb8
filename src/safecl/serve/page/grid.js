// The pictures with their answers: asking, moving, selecting, naming from the keyboard.
import { firstOf, follow, data, ofModel, predict, refresh, state } from "./api.js";
import { give, mayChange, undo } from "./change.js";
import { $, announce, fail, make, toast } from "./dom.js";
import { look } from "./look.js";
import { nearest, openNaming } from "./naming.js";
import { percent, say, told } from "./words.js";

export const pictures = [];
const MOST = 4096; // pictures that the service orders at a time
const NEXT = 20; // pictures that are put in front by "what to label next"
const FEW = 32e6; // bytes of all pictures below which they are sent whole
const LARGE = 300_000; // bytes from which a picture is made smaller to be ordered
let current = 0, anchor = 0, asking = false, number = 0;

const near = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) target.picture.near = isIntersecting;
  ask();
}, { rootMargin: "300px" });

export function add(files) {
  const fresh = files.map((file) => ({ id: ++number, file, url: URL.createObjectURL(file), name: file.name }));
  pictures.unshift(...fresh); // what was given last is seen first
  for (const picture of fresh.toReversed()) $("grid").prepend(card(picture));
  current = anchor = 0;
  arrange();
  ask();
  return fresh;
}

function card(picture) {
  const button = (className, does, ...inside) =>
    make("button", { type: "button", className, tabIndex: -1, onclick: does }, ...inside);
  const photo = make("img", { src: picture.url, alt: "", loading: "lazy", decoding: "async" });
  photo.onerror = () => photo.replaceWith(make("span", { className: "soft" }, picture.name));
  const open = (event) => {
    const how = event.shiftKey ? "range" : event.ctrlKey || event.metaKey ? "one" : "";
    go(pictures.indexOf(picture), event.shiftKey);
    if (how === "one") toggle(picture);
    else if (!how) look(picture, () => name([picture]));
  };
  const check = () => (go(pictures.indexOf(picture)), toggle(picture));
  picture.node = make("li", { picture, className: "card" },
    button("photo", open, photo),
    button("answer", () => (go(pictures.indexOf(picture)), name(targets()))),
    button("check", check, "✓"),
    make("span", { className: "rank", hidden: true }));
  near.observe(picture.node);
  paint(picture);
  return picture.node;
}

function paint(picture) {
  const { node, answer, given, selected = false } = picture, [photo, line, check, rank] = node.children;
  node.classList.toggle("selected", selected);
  node.classList.toggle("unknown", !given && Boolean(answer?.unknown));
  node.classList.toggle("bad", !given && Boolean(answer?.error));
  node.classList.toggle("learned", given?.state === "learned");
  node.classList.toggle("differs", given?.state === "learned" && !agrees(answer, given));
  const [main, more] = lines(answer, given);
  line.replaceChildren(make("span", { className: "name" }, main), " ", make("span", { className: "more" }, more));
  line.append(make("span", { className: "unseen" }, say("answer_wrong")));
  if (!given && answer?.probability != null && !answer.unknown) {
    line.append(make("meter", { value: answer.probability, ariaHidden: "true" }));
  }
  line.disabled = !answer || !mayChange();
  const place = picture.rank ? say("next_place", { n: picture.rank }) : "";
  photo.ariaLabel = [picture.name, main, more, place].filter(Boolean).join(", ");
  Object.assign(check, { ariaPressed: selected, ariaLabel: say("select", picture) });
  Object.assign(rank, { hidden: !picture.rank, textContent: picture.rank || "" });
}

const agrees = (answer, { label }) => label === null || !answer || answer.error || String(answer.label) === String(label);

// What the card says: a name, and how far to trust it.
function lines(answer, given) {
  if (given?.state === "waiting") return [given.label ?? say("taken_out"), say("waiting")];
  if (given?.label === null) return [say("taken_out"), answer ? told(answer) : ""];
  if (given) {
    return [given.label, agrees(answer, given) ? say("learned") : say("still_says", answer)];
  }
  if (!answer) return [say("asking"), ""];
  if (answer.error) return ["–", answer.error];
  if (answer.unknown) return [say("unknown"), say("most_like", answer)];
  return [answer.label, answer.probability == null ? say("unsure") : say("sure", { percent: percent(answer.probability) })];
}

function arrange() {
  const n = pictures.length, chosen = pictures.filter((one) => one.selected).length;
  $("tools").hidden = !n;
  document.body.classList.toggle("empty", !n);
  $("count").textContent = chosen ? say("count_chosen", { chosen, n }) : say("count", { n });
  current = Math.min(current, Math.max(n - 1, 0));
  pictures.forEach(({ node }, i) => {
    for (const button of node.querySelectorAll("button")) button.tabIndex = i === current ? 0 : -1;
  });
}

// Answers that the model of today has not given are asked for: new pictures first, old ones once they are in view.
async function ask() {
  if (asking || !state.info?.version) return;
  asking = true;
  const stale = (one) => one.version !== state.info.version && one.given?.state !== "waiting";
  const worth = (one) => (one.given ? 4 : 0) + (one.near ? 2 : 0) + (one.answer ? 0 : 1);
  for (let tries = 0; tries < 5; ) {
    const open = pictures.filter((one) => stale(one) && (!one.answer || one.near || one.given));
    if (!open.length) break;
    open.sort((a, b) => worth(b) - worth(a));
    const batch = open.slice(0, firstOf(open.map((one) => one.file)).length), model = state.name;
    try {
      const { answers, version } = await predict(batch.map((one) => one.file));
      if (model !== state.name) continue; // another model was chosen meanwhile
      batch.forEach((one, i) => Object.assign(one, { answer: answers[i], version }));
      if (version !== state.info.version) await refresh();
      if (version !== state.info.version) tries++, await new Promise((done) => setTimeout(done, 500));
    } catch (error) {
      if (model !== state.name) continue;
      if (error.status === 503 && ++tries < 5) await new Promise((done) => setTimeout(done, 1000));
      else for (const one of batch) Object.assign(one, { answer: { error: error.message }, version: state.info.version });
    }
    batch.forEach(paint);
  }
  asking = false;
}

function go(to, extend = false, focus = true) {
  if (!pictures.length) return;
  current = Math.max(0, Math.min(to, pictures.length - 1));
  if (extend) {
    const [first, last] = [anchor, current].sort((a, b) => a - b);
    pictures.forEach((one, i) => ((one.selected = i >= first && i <= last), paint(one)));
  } else anchor = current;
  arrange();
  if (focus) pictures[current].node.querySelector(".photo").focus();
}

function toggle(picture, on = !picture.selected) {
  picture.selected = on;
  paint(picture);
  arrange();
}

export function targets() {
  const chosen = pictures.filter((one) => one.selected);
  return chosen.length ? chosen : pictures.slice(current, current + 1);
}

function label(group, given) {
  give(group, given);
  if (given !== null) announce(say("learned_as", { label: given }));
  for (const one of group) toggle(one, false);
  go(pictures.indexOf(group.at(-1)) + 1);
}

function name(group, text = "") {
  if (!group.length || !mayChange()) return;
  openNaming(group, text, (given) => label(group, given), () => go(current));
}

function remove(group) {
  for (const one of group) {
    near.unobserve(one.node);
    one.node.remove();
    URL.revokeObjectURL(one.url);
    pictures.splice(pictures.indexOf(one), 1);
  }
  arrange();
  if (pictures.length) go(current);
}

const columns = () => {
  const tops = pictures.map(({ node }) => node.offsetTop), other = tops.findIndex((top) => top !== tops[0]);
  return other < 0 ? tops.length : other;
};

function pressed(event) {
  if (!event.target.closest(".photo, .answer, .check")) return;
  const { key, shiftKey: extend } = event, plain = !event.ctrlKey && !event.metaKey && !event.altKey;
  const known = state.info.classes.map((one) => String(one.label));
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns(), Home: -1e9, End: 1e9 };
  const onPhoto = event.target.matches(".photo");
  if (plain && key in moves) go(current + moves[key], extend);
  else if (!plain && key.toLowerCase() === "a") for (const one of pictures) toggle(one, true);
  else if (!plain && key.toLowerCase() === "z") undo();
  else if (key === "Escape") for (const one of targets()) toggle(one, false);
  else if (key === "Delete" || key === "Backspace") remove(targets());
  else if (onPhoto && key === " ") toggle(pictures[current]);
  else if (onPhoto && key === "Enter") name(targets());
  else if (!plain || key.length > 1 || key === " ") return;
  else if (key === "0" && !known.includes(key)) look(pictures[current], () => name(targets()));
  else if (key >= "1" && key <= "9" && !known.includes(key)) {
    const [group, near] = [targets(), nearest(targets()[0])[key - 1]];
    if (near) label(group, near[0]);
  } else name(targets(), key);
  event.preventDefault();
}

// Ordering needs no fine detail, and a folder of photographs would be hundreds of megabytes; but a learned picture is
// recognised by its bytes, so that few pictures are sent as they are.
async function small(file) {
  if (file.size < LARGE) return data(file);
  try {
    const drawn = await createImageBitmap(file, { resizeWidth: 512, resizeQuality: "medium" });
    const sheet = new OffscreenCanvas(drawn.width, drawn.height);
    sheet.getContext("2d").drawImage(drawn, 0, 0);
    return data(await sheet.convertToBlob({ type: "image/jpeg", quality: 0.9 }));
  } catch {
    return data(file); // a format that only the service reads
  }
}

async function order() {
  const open = pictures.filter((one) => !one.given && !one.answer?.error).slice(0, MOST);
  if (!open.length) return toast(say("next_none"));
  const few = open.reduce((sum, one) => sum + one.file.size, 0) < FEW;
  const read = open.map((one) => (few ? data : small)(one.file));
  const sent = { pictures: await Promise.all(read), count: Math.min(NEXT, open.length) };
  const { result } = await follow((await ofModel("queue", sent)).job);
  const first = result.first.map(({ index }) => open[index]);
  if (!first.length) return toast(say("next_none"));
  for (const one of pictures) one.rank = first.indexOf(one) + 1;
  pictures.sort((a, b) => (a.rank || 1e9) - (b.rank || 1e9));
  $("grid").append(...pictures.map((one) => one.node));
  pictures.forEach(paint);
  go(0);
  announce(say("next_done", { n: first.length }));
}

export function startGrid() {
  arrange();
  $("grid").addEventListener("keydown", pressed);
  $("grid").addEventListener("focusin", ({ target }) => {
    const at = pictures.indexOf(target.closest(".card").picture);
    if (at !== current) go(at, false, false);
  });
  $("next").onclick = () => order().catch(fail);
  $("all").onclick = () => pictures.forEach((one) => toggle(one, true));
  $("clear").onclick = () => remove([...pictures]);
  document.addEventListener("given", ({ detail }) => {
    for (const one of detail) paint(one);
    ask();
  });
  document.addEventListener("model", ({ detail }) => {
    for (const one of pictures) {
      if (!detail.same) Object.assign(one, { given: undefined, answer: undefined, version: null, rank: 0 });
      paint(one);
    }
    ask();
  });
}
