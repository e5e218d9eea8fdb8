// What the model knows, what it mixes up, and its history.
import { downloadExport, downloadModel, state } from "./api.js";
import { mayChange, rollBack } from "./change.js";
import { $, fail, make, toast } from "./dom.js";
import { pictures } from "./grid.js";
import { percent, say } from "./words.js";

const WHAT = { learn: "what_learn", run: "what_run", forget: "what_forget", rename: "what_rename", merge: "what_merge",
  correct: "what_correct", split: "what_split", join: "what_join" };
const GOOD = 0.9; // share of right answers from which a class needs nothing more
const soft = (text) => make("span", { className: "soft" }, text);

function thumbnails(label, most = 2) {
  const kept = state.info.thumbnails?.[label] || [];
  const here = pictures.filter(({ given }) => given?.state === "learned" && String(given.label) === String(label));
  const sources = [...kept, ...here.map(({ url }) => url)].slice(0, most);
  return make("span", { className: "thumbs" }, ...sources.map((src) => make("img", { src, alt: "" })));
}

function facts({ classes, accuracy, method, backbone, size }) {
  const learned = classes.reduce((sum, one) => sum + one.pictures, 0);
  const found = [[classes.length, say("fact_classes"), ""], [learned, say("fact_pictures", { n: learned }), ""]];
  if (accuracy) {
    const range = say("fact_range", { low: percent(accuracy.low), high: percent(accuracy.high) });
    found.push([percent(accuracy.value), say("fact_accuracy"), range]);
  }
  found.push([`${(size / 1e6).toFixed(1)} MB`, say("fact_file"), say("fact_network", { method, backbone })]);
  $("facts").replaceChildren(...found.map(([value, name, more]) =>
    make("div", {}, make("dt", {}, name), make("dd", { className: "big" }, value), make("dd", { className: "soft" }, more))));
}

// The interval as a bar, the estimate as a line in it.
function span({ judged, correct, low, high }) {
  if (!judged) return soft(say("not_judged"));
  const bar = make("i"), line = make("b"), box = make("span", { className: "span", ariaHidden: "true" }, bar, line);
  Object.assign(bar.style, { left: `${100 * low}%`, width: `${100 * (high - low)}%` });
  line.style.left = `${(100 * correct) / judged}%`;
  const told = `${say("judged", { right: correct, judged })}, ${say("interval", { low: percent(low), high: percent(high) })}`;
  return make("span", {}, box, soft(told));
}

function enough({ judged, correct, gain }) {
  if (!judged) return soft("–");
  if (!gain && correct < GOOD * judged) return soft(say("enough_little")); // it errs for another reason
  if (!gain) return make("span", { className: "good" }, say("enough_yes"));
  const points = Math.round(100 * gain);
  return make("span", { className: "warn" }, points ? say("enough_more", { points }) : say("enough_more_some"));
}

function classTable({ classes }) {
  const share = (one) => (one.judged ? one.correct / one.judged : 2);
  const rows = classes.toSorted((a, b) => share(a) - share(b)).map((one) =>
    make("tr", {}, make("th", { scope: "row" }, thumbnails(one.label), String(one.label)),
      make("td", { className: "number" }, one.pictures), make("td", {}, span(one)), make("td", {}, enough(one))));
  const heads = [say("column_class"), say("column_pictures"), say("column_accuracy"), say("column_enough")];
  const head = make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text))));
  $("class_table").replaceChildren(head, make("tbody", {}, ...rows));
}

function confusions() {
  const found = (state.info.confusions || []).map(({ label, answer, count }) =>
    make("li", {}, thumbnails(label, 3), soft("→"), thumbnails(answer, 3), say("confused", { n: count, label, answer })));
  const here = pictures.filter(({ given }) => given?.was && !given.was.error && String(given.was.label) !== String(given.label));
  found.push(...here.filter(({ given }) => given.label !== null).map(({ given, url }) =>
    make("li", {}, make("span", { className: "thumbs" }, make("img", { src: url, alt: "" })), soft("→"), thumbnails(given.was.label),
      say("confused_here", { label: given.label, answer: given.was.label }))));
  $("confusions").replaceChildren(...(found.length ? found : [make("li", { className: "soft" }, say("confusions_none"))]));
}

function history({ history: steps, rolls_back: last }) {
  $("steps").replaceChildren(...steps.toReversed().map((step) => {
    const time = new Date(step.date).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    const facts = [time, step.pictures && say("count", { n: step.pictures }), step.new?.length && say("step_new", { labels: step.new.join(", ") })];
    const back = step.id === last && mayChange()
      ? make("button", { type: "button", onclick: () => sure(step) }, say("rollback")) : null;
    return make("li", {}, make("div", {}, make("strong", {}, WHAT[step.what] ? say(WHAT[step.what]) : step.what), ` ${step.name}`,
      make("div", { className: "soft" }, facts.filter(Boolean).join(" · "))), back);
  }));
}

// The only step that cannot be undone, so it asks.
function sure(step) {
  $("sure_said").textContent = say("rollback_sure", step);
  $("sure").returnValue = "";
  $("sure").onclose = () => $("sure").returnValue === "yes" && rollBack(step.id).catch(fail);
  $("sure").showModal();
}

export function startKnown() {
  const busy = async (button, does) => {
    button.disabled = true;
    await does().catch(fail);
    button.disabled = false;
  };
  $("take_model").onclick = () => busy($("take_model"), downloadModel);
  $("take_onnx").onclick = () => busy($("take_onnx"), async () => toast((await downloadExport($("take_small").checked ? "fp16" : "fp32")).said));
}

export function paintKnown() {
  if (!state.info?.version) return;
  $("take").hidden = !state.info.may_change;
  $("take_model").textContent = say("take_model", { size: `${(state.info.size / 1e6).toFixed(1)} MB` });
  facts(state.info);
  classTable(state.info);
  confusions();
  history(state.info);
}
