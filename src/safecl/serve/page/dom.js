// Small things around the document: finding, making, telling.
import { say } from "./words.js";

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter((child) => child != null));
  return node;
}

export function fillWords() {
  for (const node of document.querySelectorAll("[data-word]")) node.textContent = say(node.dataset.word);
  for (const node of document.querySelectorAll("[data-label]")) node.ariaLabel = say(node.dataset.label);
  for (const node of document.querySelectorAll("[data-hint]")) node.placeholder = say(node.dataset.hint);
}

// For those who hear the page; a toast is read by itself.
export function announce(text) {
  $("said").textContent = text;
}

export function toast(text, { action, does, bad = false } = {}) {
  for (const other of [...$("toasts").children]) if (other.firstChild.textContent === text) other.remove();
  const note = make("div", { className: bad ? "toast bad" : "toast" }, make("span", {}, text));
  const close = () => note.remove();
  if (action) {
    const press = () => (close(), does());
    note.append(make("button", { type: "button", textContent: action, onclick: press }));
  }
  note.append(make("button", { type: "button", className: "quiet round", ariaLabel: say("close"), onclick: close }, "×"));
  $("toasts").append(note);
  while ($("toasts").children.length > 2) $("toasts").firstChild.remove();
  // An undo is in the history for good, so its note may go; it stays while someone is on it.
  const leave = () => (note.matches(":hover, :focus-within") ? setTimeout(leave, 2000) : close());
  setTimeout(leave, bad ? 20000 : 10000);
}

export const fail = (error) => toast(error.message, { bad: true });
