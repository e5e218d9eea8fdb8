// The service's HTTP interface, and the model that the page is about.
import { $, toast } from "./dom.js";
import { say } from "./words.js";

export const state = { name: "", info: null };
const BATCH = 16, BATCH_BYTES = 8e6; // pictures, and their bytes, that are asked about at a time
let token = sessionStorage.getItem("token") || "";

export function setToken(given) {
  token = given;
  sessionStorage.setItem("token", given);
}

export async function call(path, body, method = body === undefined ? "GET" : "POST") {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body instanceof Blob) headers["Content-Type"] = "application/octet-stream";
  else if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, { method, headers, body });
  } catch {
    throw new Error(say("gone"));
  }
  if (answer.ok) return answer;
  const { error, pictures } = await answer.json().catch(() => ({}));
  if (answer.status === 401 && method === "GET") {
    await askToken(error);
    return call(path);
  }
  throw Object.assign(new Error(error || say("odd", { status: answer.status })), { status: answer.status, pictures });
}

export const fetched = async (...given) => (await call(...given)).json();
export const ofModel = (what, body, name) => fetched(`${place(name)}/${what}`, body);
const place = (name = state.name) => `api/models/${encodeURIComponent(name)}`;

function askToken(why) {
  $("door_said").textContent = why || "";
  $("door").showModal();
  return new Promise((done) => {
    $("door").onclose = () => (setToken($("door_token").value.trim()), done());
  });
}

// What is wrong with the model's file, and how today's pictures differ from those taught.
function showTroubles({ fault, drift }) {
  const told = [fault && say("fault", { why: fault }), drift?.told ?? drift].filter(Boolean).join(" ");
  $("fault").hidden = !told;
  $("fault").textContent = told;
}

export async function refresh() {
  const before = state.info;
  state.info = await fetched(place());
  showTroubles(state.info);
  const same = before && before.name === state.info.name;
  if (same && before.version === state.info.version) return;
  const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const words = !state.info.version ? "version_new" : same ? "updated" : "version";
  $("version").textContent = say(words, { version: state.info.version.slice(0, 7), time });
  document.dispatchEvent(new CustomEvent("model", { detail: { same } }));
}

export function data(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

// The first of the files that make one request.
export function firstOf(files) {
  let bytes = 0;
  return files.filter((file, i) => i < BATCH && ((bytes += file.size) < BATCH_BYTES || i === 0));
}

export async function predict(files) {
  const found = await ofModel("predict?detail=1", { pictures: await Promise.all(files.map(data)) });
  showTroubles(found);
  return found;
}

export const heatMap = async (file, label) =>
  (await call(`${place()}/heat_map?label=${encodeURIComponent(label)}`, file)).blob();

// Jobs: one bar shows the one that reported last.
const KINDS = { learn: "job_learn", correct: "job_correct", rollback: "job_rollback", queue: "job_queue", export: "job_export", audit: "job_audit" };
const running = new Map();
const ended = (job) => ["done", "failed", "stopped"].includes(job.state);
const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

function show(job) {
  running.delete(job.id);
  if (!ended(job)) running.set(job.id, job);
  const last = [...running.values()].pop();
  $("job").hidden = !last;
  if (!last) return;
  const what = say(KINDS[last.what]), share = `${Math.round(100 * last.progress)} %`, left = last.seconds_left;
  const time = left > 90 ? say("minutes", { n: Math.round(left / 60) }) : say("seconds", { n: Math.ceil(left) });
  const key = last.state === "waiting" ? "job_waiting" : left == null ? "job_running" : "job_left";
  $("job_bar").value = last.progress;
  $("job_said").textContent = say(key, { what, percent: share, time });
  $("job_stop").onclick = () => call(`api/jobs/${last.id}`, undefined, "DELETE").catch((error) => toast(error.message));
}

// EventSource cannot send the token, so the stream is read by hand.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part; !(part = await reader.read()).done; ) {
    const blocks = (rest + part.value.replaceAll("\r", "")).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n").filter((line) => line.startsWith("data:"));
      if (lines.length) yield JSON.parse(lines.map((line) => line.slice(5)).join("\n"));
    }
  }
}

// Follow a job to its end; gives it, or throws its sentence.
export async function follow(job) {
  show(job);
  while (!ended(job)) {
    try {
      for await (const now of events((await call(`api/jobs/${job.id}/events`)).body)) {
        const news = now.said !== job.said && !state.info.version && now.model === state.name;
        show((job = now));
        if (news) refresh().catch(() => {}); // a first lesson answers before it is over
      }
    } catch (error) {
      if (error.status === 404) break; // else the stream was cut: ask for where it stands
    }
    if (ended(job)) break;
    await sleep(1);
    job = await fetched(`api/jobs/${job.id}`).catch((error) => {
      show({ ...job, state: "failed" });
      throw error;
    });
    show(job);
  }
  await refresh().catch((error) => toast(error.message)); // the job has ended all the same
  if (job.state === "done") return job;
  throw new Error(job.error || say("stopped"));
}

const CHANGES = ["learn", "correct", "rollback"];
export const isBusy = () => [...running.values()].some((job) => job.model === state.name && CHANGES.includes(job.what));

// Have the browser keep a file of the service; a link could not bring the token.
async function download(path, name) {
  const url = URL.createObjectURL(await (await call(path)).blob());
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export const downloadModel = () => download(`${place()}/file`, `${state.name}.safecl`);

export async function downloadExport(precision) {
  const job = await follow((await ofModel("export", { precision })).job);
  await download(`api/jobs/${job.id}/file`, `${job.model}.onnx`);
  return job;
}
