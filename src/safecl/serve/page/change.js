// What changes the model: labels given to pictures, sessions, and taking the last of them back.
import { data, follow, isBusy, ofModel, state } from "./api.js";
import { announce, fail, toast } from "./dom.js";
import { say } from "./words.js";

const PAUSE = 400; // ms without a further label until those given are sent together
const waiting = []; // groups of { picture, label, before, model } that were given and not sent yet
const done = []; // changes made here, the newest last: { from, version, group }, versions before and after
let timer = 0, sending = false;

export const mayChange = () => state.info && state.info.may_change && !state.info.frozen;
const repaint = (pictures) => document.dispatchEvent(new CustomEvent("given", { detail: pictures }));

// label null: take out what was learned from the pictures.
export function give(pictures, label) {
  if (!mayChange()) return toast(say("only_answers"), { bad: true });
  waiting.push(pictures.map((picture) => ({ picture, label, before: picture.given, model: state.name })));
  for (const picture of pictures) Object.assign(picture, { given: { label, state: "waiting" } });
  repaint(pictures);
  later();
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(send, PAUSE);
}

async function send() {
  if (sending || !waiting.length) return;
  if (isBusy()) return later();
  sending = true;
  const from = state.info.version;
  const [{ model }] = waiting[0], own = waiting.filter(([one]) => one.model === model);
  waiting.splice(0, waiting.length, ...waiting.filter(([one]) => one.model !== model));
  const group = [...new Map(own.flat().map((one) => [one.picture, one])).values()]; // the last label counts
  try {
    const pictures = group.map(async ({ picture, label }) => ({ data: await data(picture.file), label }));
    const { job } = await ofModel("correct", { pictures: await Promise.all(pictures) }, model);
    const end = await follow(job);
    for (const { picture, label } of group) {
      if (picture.given?.state === "waiting") picture.given = { label, state: "learned", was: picture.answer };
    }
    settled(end, from, group, sentence(group));
  } catch (error) {
    for (const { picture, before } of group) picture.given = before;
    fail(error);
  }
  sending = false;
  repaint(group.map(({ picture }) => picture));
  send();
}

function sentence(group) {
  const labels = new Set(group.map(({ label }) => label)), n = group.length, [label] = labels;
  if (labels.size > 1) return say("change_some", { n });
  return label === null ? say("change_out", { n }) : say("change_gave", { n, label });
}

function settled(job, from, group, text) {
  done.push({ from, version: job.version, group });
  const more = state.info.can_roll_back ? { action: say("undo"), does: undo } : {};
  toast(text, more);
}

export async function undo() {
  const unsent = waiting.pop();
  if (unsent) {
    for (const { picture, before } of unsent) picture.given = before;
    repaint(unsent.map(({ picture }) => picture));
    return announce(say("undo_unsent"));
  }
  const last = done.at(-1);
  if (!last || !state.info.can_roll_back) return toast(say("undo_none"));
  if (last.version && last.version !== state.info.version) return toast(say("undo_changed"));
  await rollBack().catch(fail);
}

export async function rollBack() {
  const own = done.at(-1)?.version === state.info.version; // else the last step was made elsewhere
  await follow((await ofModel("rollback", {})).job);
  const { group, from } = (own && done.pop()) || { group: [] };
  for (const { picture, before } of group) picture.given = before;
  if (from && done.at(-1)?.version === from) done.at(-1).version = state.info.version;
  repaint(group.map(({ picture }) => picture));
  toast(say("undone"));
}

// pictures: [{ file, label }]
export async function learn(pictures, name) {
  const sent = await Promise.all(pictures.map(async ({ file, label }) => ({ data: await data(file), label })));
  const from = state.info.version;
  const { job } = await ofModel("learn", { ...(name && { name }), pictures: sent });
  const end = await follow(job);
  settled(end, from, [], end.said || say("change_learned", { n: pictures.length }));
}
