// What a reader can fill in: by kind, an element and how it shows what is in it.

import { html, setText } from "./dom.js";

const TYPING_MS = 250;
const MAKERS = { choice, number, pages, search };

export function fieldOf({ kind, label, options }, changed) {
  return MAKERS[kind](label, (options ?? []).map(plain), changed);
}

// Panel sends what Python calls a dict as a Map.
export function plain(value) {
  return value instanceof Map ? Object.fromEntries(value) : (value ?? {});
}

function search(label, options, changed) {
  const input = html("input", { type: "search", placeholder: label, "aria-label": label });
  return typed(input, input, changed);
}

function number(label, options, changed) {
  const input = html("input", { type: "number", step: "any", "aria-label": label });
  return typed(input, html("label", {}, label, input), changed);
}

function typed(input, root, changed) {
  let typing = 0;
  input.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => changed(input.value), TYPING_MS);
  });
  return {
    root,
    draw: (value) => {
      if (input.getRootNode().activeElement !== input) input.value = value;
    },
  };
}

function choice(label, options, changed) {
  const made = options.map(({ value, text }) => html("option", { value }, text));
  const select = html("select", {}, ...made);
  select.addEventListener("change", () => changed(select.value));
  return {
    root: html("label", {}, label, select),
    draw: (value) => { select.value = value; },
  };
}

function pages(label, options, changed) {
  const place = html("span", { role: "status" });
  let page = 0;
  const step = (text, name, by) => {
    const button = html("button", { type: "button", "aria-label": name }, text);
    button.addEventListener("click", () => changed(String(page + by)));
    return button;
  };
  const back = step("‹", `previous ${label}`, -1);
  const on = step("›", `next ${label}`, 1);
  return {
    root: html("span", { class: "pages" }, back, place, on),
    draw: (value, { text, last }) => {
      page = Math.min(Number(value) || 0, last ?? 0);
      setText(place, text ?? "");
      back.disabled = page <= 0;
      on.disabled = page >= (last ?? 0);
    },
  };
}
