// Light or dark as the system is, unless somebody chose otherwise.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  const stored = (change) => {
    try {
      return change(localStorage);
    } catch {
      return null; // a frame that may keep nothing
    }
  };
  const KEY = "workbench-theme";
  apply(stored((store) => store.getItem(KEY)));
  addEventListener("storage", (event) => event.key === KEY && apply(event.newValue));
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      const dark = !isDark();
      const theme = dark === system.matches ? "" : dark ? "dark" : "light"; // empty: the system's
      apply(theme);
      stored((store) => store.setItem(KEY, theme));
      label();
    });
    system.addEventListener("change", label);
    label();
  });
})();
