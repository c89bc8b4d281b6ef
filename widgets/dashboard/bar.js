// What is above the pictures: what is wrong, what can be searched and sorted, what can be taken away.

const TYPING_MS = 250;

const STYLE = `
:host { display: block; }
.bar { color: var(--ink); font: 13px/1.4 system-ui, "Segoe UI", Roboto, Arial, sans-serif; }
[hidden] { display: none !important; }
.notice {
  margin: 0 0 0.8rem; padding: 0.5rem 0.8rem; border: 1px solid var(--line); border-left: 4px solid var(--line);
  border-radius: 4px; background: var(--paper); overflow-wrap: anywhere; white-space: pre-wrap;
}
.notice.bad { border-left-color: var(--bad); background: var(--bad-paper); color: var(--bad); }
.row { display: flex; flex-wrap: wrap; align-items: center; gap: 0.4rem 0.9rem; margin: 0 0 0.7rem; }
label { display: inline-flex; align-items: center; gap: 0.4rem; color: var(--quiet); }
input, select, button {
  font: inherit; color: var(--ink); background: var(--paper); border: 1px solid var(--line);
  border-radius: 4px; padding: 0.25rem 0.5rem; min-width: 0;
}
input[type="search"] { width: 15rem; max-width: 60vw; }
button { cursor: pointer; }
button:hover:enabled { background: var(--shade); }
button:disabled { color: var(--quiet); cursor: default; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
.pages { display: inline-flex; align-items: center; gap: 0.4rem; font-variant-numeric: tabular-nums; }
.links { margin-left: auto; display: flex; flex-wrap: wrap; gap: 0.2rem 0.8rem; font-size: 12px; }
.links a { color: var(--link); }
`;

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function plain(value) {
  return value instanceof Map ? Object.fromEntries(value) : (value ?? {});
}

function render({ model, el }) {
  const shadow = el.appendChild(element("div")).attachShadow({ mode: "open" });
  const notice = element("p", { class: "notice", role: "status" });
  const fields = element("span", { class: "row", style: "margin: 0" });
  const links = element("span", { class: "links" });
  const row = element("div", { class: "row" }, fields, links);
  shadow.append(element("style", {}, STYLE), element("div", { class: "bar" }, notice, row));

  const values = () => plain(model.get("values"));
  const put = (name, value) => {
    const first = "page" in values() ? { page: "0" } : {}; // of what is found from now on
    model.set("values", { ...values(), ...first, [name]: value });
    model.save_changes();
  };
  const makers = { search, choice, pages };
  const drawn = (model.get("fields") ?? []).map((field) => {
    const { name, kind, label, options } = plain(field);
    const part = makers[kind](label, options ?? [], (value) => put(name, value));
    fields.append(part.root);
    return () => part.draw(values()[name] ?? "", model.get("note"));
  });

  function draw() {
    const { text, tone } = plain(model.get("notice"));
    notice.textContent = text ?? "";
    notice.hidden = !text;
    notice.className = `notice ${tone ?? ""}`;
    for (const part of drawn) part();
    const offered = (model.get("links") ?? []).map(plain);
    const key = JSON.stringify(offered);
    if (links.dataset.key !== key) {
      links.dataset.key = key;
      links.replaceChildren(...offered.map(({ label, href }) =>
        element("a", { href, download: "" }, label)));
    }
    row.hidden = drawn.length === 0 && offered.length === 0;
  }

  const names = ["notice", "note", "values", "links"].map((name) => `change:${name}`);
  for (const name of names) model.on(name, draw);
  // Nobody sees a hidden page: it asks for nothing until it is shown again.
  const seen = () => {
    model.set("hidden", document.hidden);
    model.save_changes();
  };
  document.addEventListener("visibilitychange", seen);
  if (document.hidden) seen();
  draw();
  return () => {
    for (const name of names) model.off(name, draw);
    document.removeEventListener("visibilitychange", seen);
  };
}

function search(label, options, changed) {
  const input = element("input", { type: "search", placeholder: label, "aria-label": label });
  let typing = 0;
  input.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => changed(input.value), TYPING_MS);
  });
  return {
    root: input,
    draw: (value) => {
      if (input.getRootNode().activeElement !== input) input.value = value;
    },
  };
}

function choice(label, options, changed) {
  const select = element("select", {}, ...options.map((option) => {
    const { value, text } = plain(option);
    return element("option", { value }, text);
  }));
  select.addEventListener("change", () => changed(select.value));
  return {
    root: element("label", {}, label, select),
    draw: (value) => { select.value = value; },
  };
}

function pages(label, options, changed) {
  const place = element("span", { role: "status" });
  let page = 0;
  const step = (text, name, by) => {
    const button = element("button", { type: "button", "aria-label": name }, text);
    button.addEventListener("click", () => changed(String(page + by)));
    return button;
  };
  const back = step("‹", `previous ${label}`, -1);
  const on = step("›", `next ${label}`, 1);
  return {
    root: element("span", { class: "pages" }, back, place, on),
    draw: (value, note) => {
      page = Number(value) || 0;
      const { text, last } = plain(note);
      place.textContent = text ?? "";
      back.disabled = page <= 0;
      on.disabled = page >= (last ?? 0);
    },
  };
}

export default { render };
