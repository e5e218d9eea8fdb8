// What changes the model: labels given to pictures, sessions, and taking the last of them back.
import { data, follow, isBusy, ofModel, state } from "./api.js";
import { announce, fail, toast } from "./dom.js";
import { say } from "./words.js";

const PAUSE = 400; // ms without a further label until those given are sent together
const waiting = []; // groups of { picture, label, before, model } that were given and not sent yet
let done = []; // changes made here, the newest last: { model, step, group }
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
  const [{ model, label: first }] = waiting[0]; // labels apart from what is taken out: that may be refused as a whole
  const next = waiting.findIndex(([one]) => one.model !== model || (one.label === null) !== (first === null));
  const own = waiting.splice(0, next < 0 ? waiting.length : next);
  const group = [...new Map(own.flat().map((one) => [one.picture, one])).values()]; // the last label counts
  try {
    const pictures = group.map(async ({ picture, label }) => ({ data: await data(picture.file), label }));
    const { job } = await ofModel("correct", { pictures: await Promise.all(pictures) }, model);
    const end = await follow(job);
    for (const { picture, label } of group) {
      const { given } = picture; // another label may have been given meanwhile
      if (given?.state === "waiting" && given.label === label) picture.given = { label, state: "learned", was: picture.answer, step: end.step };
    }
    settled(end, group, sentence(group));
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

function settled({ model, step }, group, text) {
  done.push({ model, step, group });
  const undoes = state.info.rolls_back === step;
  if (undoes || group.length) toast(text, undoes ? { action: say("undo"), does: undo } : {});
}

// What was taken back, here or elsewhere, is no longer shown as learned.
function settle() {
  const steps = new Set(state.info.history.map(({ id }) => id));
  const gone = done.filter(({ model, step }) => model === state.name && !steps.has(step)).reverse();
  done = done.filter((one) => !gone.includes(one));
  for (const { step, group } of gone) {
    for (const { picture, before } of group) if (picture.given?.step === step) picture.given = before;
    repaint(group.map(({ picture }) => picture));
  }
}

export async function undo() {
  const unsent = waiting.pop();
  if (unsent) {
    for (const { picture, before } of unsent) picture.given = before;
    repaint(unsent.map(({ picture }) => picture));
    return announce(say("undo_unsent"));
  }
  const last = done.findLast(({ model }) => model === state.name);
  if (!last || !state.info.rolls_back) return toast(say("undo_none"));
  if (last.step !== state.info.rolls_back) return toast(say("undo_changed"));
  await rollBack(last.step).catch(fail);
}

export async function rollBack(step) {
  await follow((await ofModel("rollback", { step })).job);
  toast(say("undone"));
}

// pictures: [{ file, label }]; began(id): once the service has them; gives the job at its end.
export async function learn(pictures, name, began) {
  const model = state.name; // another may be chosen while the files are read
  const sent = await Promise.all(pictures.map(async ({ file, label }) => ({ data: await data(file), label })));
  const { job } = await ofModel("learn", { ...(name && { name }), pictures: sent }, model);
  began(job.id);
  const end = await follow(job);
  settled(end, [], end.said);
  return end;
}

document.addEventListener("model", settle);
