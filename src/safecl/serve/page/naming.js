// The box in which the right class is typed or chosen: a combobox over the classes, the nearest first.
import { state } from "./api.js";
import { $, make } from "./dom.js";
import { percent, say } from "./words.js";

let shown = [], active = 0, chosen = null, left = null, best = [];

// An answer may be older than the classes of today, for a moment.
export const nearest = ({ answer }) =>
  (answer?.nearest || []).filter(([label]) => state.info.classes.some((one) => one.label === label));

// A class of nearly this name, if there is none of this name: what is typed may be a slip. more: names to be classes.
export function nearName(text, more = []) {
  const low = text.toLowerCase(), labels = [...(state.info?.classes || []).map(({ label }) => label), ...more];
  if (labels.some((label) => String(label).toLowerCase() === low)) return undefined;
  const most = low.length < 3 ? 0 : low.length < 6 ? 1 : 2;
  return labels.find((label) => slips(String(label).toLowerCase(), low) <= most && !numbered(String(label).toLowerCase(), low));
}

// Names that are told apart by a number or a letter on purpose: rose 1 and rose 2, type a and type b.
function numbered(a, b) {
  const [one, other] = [a, b].map((name) => name.split(/[\s_-]+/)), digits = (name) => name.replace(/\D+/g, " ").trim();
  const differ = one.filter((part, i) => part !== other[i]);
  return digits(a) !== digits(b) || (one.length === other.length && one.length > 1 && differ.length === 1 && differ[0].length < 3);
}

// Letters to add, omit, replace or swap with the next until a is b.
function slips(a, b) {
  let past = [], row = [...Array(b.length + 1).keys()];
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] !== b[j - 1]));
      if (a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) next[j] = Math.min(next[j], past[j - 2] + 1);
    }
    [past, row] = [row, next];
  }
  return row[b.length];
}

// done(label): once it is chosen; back(): where focus goes otherwise.
export function openNaming(group, text, done, back) {
  best = nearest(group[0]);
  [chosen, left] = [done, back];
  $("naming_head").textContent = group.length > 1 ? say("naming_many", { n: group.length }) : say("naming_one");
  $("naming_text").value = text;
  $("naming").showPopover();
  place(group.find((one) => one.selected && one.node.contains(document.activeElement))?.node || group[0].node);
  list();
  $("naming_text").focus();
}

// Below the card or above it; on a phone the style sheet puts it at the bottom.
function place(node) {
  const card = node.getBoundingClientRect(), box = $("naming"), { offsetWidth: width, offsetHeight: height } = box;
  const below = card.bottom + 6 + height < innerHeight;
  box.style.left = `${Math.max(8, Math.min(card.left, innerWidth - width - 8))}px`;
  box.style.top = `${below ? card.bottom + 6 : Math.max(8, card.top - height - 6)}px`;
}

function list() {
  const text = $("naming_text").value.trim(), low = text.toLowerCase();
  const near = best.map(([label, share], i) => ({ label, share, key: i + 1 }));
  const others = state.info.classes.map(({ label }) => ({ label })).filter((one) => !near.some((n) => n.label === one.label));
  others.sort((a, b) => String(a.label).localeCompare(String(b.label), undefined, { numeric: true }));
  const spelled = (one) => String(one.label).toLowerCase();
  const all = [...near, ...others];
  shown = [...all.filter((one) => spelled(one).startsWith(low)),
    ...all.filter((one) => !spelled(one).startsWith(low) && spelled(one).includes(low))];
  const same = shown.findIndex((one) => String(one.label) === text);
  if (text && same < 0) {
    // A name that begins like no class is a new one; else the class comes first, and the new one after it.
    const fresh = { label: text, fresh: true };
    if (shown.length && spelled(shown[0]).startsWith(low)) shown.push(fresh);
    else shown.unshift(fresh);
    const meant = nearName(text);
    if (meant !== undefined && !shown.some(({ label }) => label === meant)) shown.splice(1, 0, { label: meant, meant: true });
  }
  active = Math.max(same, 0);
  $("naming_list").replaceChildren(...shown.map((one, i) => {
    const option = make("li", { role: "option", id: `option_${i}`, onmousedown: (event) => event.preventDefault() });
    option.onclick = () => take(one);
    option.append(make("span", {}, one.fresh ? say("new_class", one) : one.meant ? say("meant", one) : one.label));
    if (one.share != null) option.append(make("span", { className: "soft" }, percent(one.share)));
    if (one.key && !text) option.append(make("kbd", {}, one.key));
    return option;
  }));
  mark();
}

function mark() {
  [...$("naming_list").children].forEach((option, i) => (option.ariaSelected = i === active));
  $("naming_text").setAttribute("aria-activedescendant", shown.length ? `option_${active}` : "");
  $("naming_list").children[active]?.scrollIntoView({ block: "nearest" });
}

function take(one) {
  const done = chosen;
  chosen = left = null;
  $("naming").hidePopover();
  done(one.label);
}

export function startNaming() {
  $("naming_text").oninput = list;
  $("naming_text").onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const byKey = !$("naming_text").value && shown.find((one) => String(one.key) === event.key);
    const spelled = state.info.classes.some(({ label }) => String(label).startsWith(event.key));
    if (step && shown.length) (active = (active + step + shown.length) % shown.length), mark();
    else if (byKey && !spelled) take(byKey);
    else return;
    event.preventDefault();
  };
  $("naming").onsubmit = (event) => {
    event.preventDefault();
    if (shown[active]) take(shown[active]);
  };
  $("naming").addEventListener("toggle", ({ newState }) => {
    if (newState === "closed" && left) left();
  });
}
