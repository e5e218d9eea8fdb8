// The beginning: token, models, views, theme.
import { fetched, follow, refresh, setToken, state } from "./api.js";
import { give, mayChange, undo } from "./change.js";
import { $, fail, fillWords, make, toast } from "./dom.js";
import { nameDrawing, openDraw, startGive, stopCamera } from "./give.js";
import { add, startGrid } from "./grid.js";
import { paintKnown, startKnown } from "./knows.js";
import { startLook } from "./look.js";
import { startNaming } from "./naming.js";
import { addLesson, startTeach } from "./teach.js";
import { say } from "./words.js";

const DRAWN = "drawn characters"; // the first session of a model that was taught to read drawings
const VIEWS = ["pictures", "teach", "knows", "history"];
const KEYS = [["key_arrows", "key_arrows_do"], ["key_enter", "key_enter_do"], ["key_digits", "key_digits_do"],
  ["key_zero", "key_zero_do"], ["key_space", "key_space_do"], ["key_delete", "key_delete_do"], ["key_undo", "key_undo_do"]];

const isNew = () => state.info && !state.info.version; // it has learned nothing yet

function showView() {
  const view = VIEWS.find((one) => `#${one}` === location.hash) || VIEWS[0], nothing = isNew() && view !== "teach";
  for (const one of VIEWS) $(`view_${one}`).hidden = nothing || one !== view;
  $("nothing").hidden = !nothing;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.body.dataset.view = view;
  $("give").hidden = nothing || view === "knows" || view === "history";
  $("give_lead").lastElementChild.textContent = view === "teach" ? say("teach_to") : say("drop_more");
  if (view === "teach") $("give_teach").append($("give"));
  else $("main").prepend($("give"));
  $("head_teach").textContent = say(isNew() ? "nothing_teach" : "teach_head");
  $("first").hidden = !isNew();
  $("teach_lead").hidden = isNew();
  nameDrawing();
  paintKnown();
}

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  const usual = () => (dark.matches ? "dark" : "light"), now = () => localStorage.getItem("theme") || usual();
  const paint = () => {
    root.dataset.theme = now();
    $("theme").ariaLabel = $("theme").title = say(now() === "dark" ? "theme_light" : "theme_dark");
  };
  $("theme").onclick = () => {
    const other = now() === "dark" ? "light" : "dark";
    if (other === usual()) localStorage.removeItem("theme"); // it follows the system again
    else localStorage.setItem("theme", other);
    paint();
  };
  dark.onchange = paint;
  paint();
}

async function openModel(name) {
  state.name = name;
  await refresh();
  if (isNew()) location.hash = "teach";
  if (!mayChange()) toast(say("only_answers"));
  const { jobs } = await fetched("api/jobs");
  for (const job of jobs) {
    if (job.model === name && ["waiting", "running"].includes(job.state)) follow(job).catch(fail);
  }
}

async function start() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("token")) setToken(asked.get("token"));
  if (asked.has("token") || asked.has("draw")) history.replaceState(null, "", location.pathname);
  fillWords();
  startTheme();
  startGrid();
  startNaming();
  startLook();
  startTeach();
  startKnown();
  const taught = (file, label) => give(add([file]), label);
  const given = (found) => (location.hash === "#teach" ? addLesson(found) : add(found.map(({ file }) => file)));
  startGive((found) => (isNew() && (location.hash = "teach"), given(found)), taught);
  $("help_keys").append(...KEYS.map(([key, does]) => make("div", {}, make("dt", {}, make("kbd", {}, say(key))), make("dd", {}, say(does)))));
  $("help_open").onclick = () => $("help").showModal();
  $("help_close").onclick = () => $("help").close();
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, #grid *");
    if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing) event.preventDefault(), undo();
  });
  document.addEventListener("model", () => {
    showView();
    $("classes").replaceChildren(...state.info.classes.map(({ label }) => make("option", { value: label })));
  });
  document.addEventListener("given", paintKnown);
  window.addEventListener("hashchange", () => (stopCamera(), showView(), $("main").focus({ preventScroll: true }), scrollTo(0, 0)));
  window.addEventListener("focus", () => state.info && refresh().catch(() => {}));
  showView();
  const { models } = await fetched("api/models");
  $("models").replaceChildren(...models.map(({ name }) => make("option", {}, name)));
  $("models").onchange = () => openModel($("models").value).catch(fail);
  await openModel(models[0].name);
  if (asked.has("draw") || state.info.history[0]?.name === DRAWN) openDraw();
}

start().catch(fail);
