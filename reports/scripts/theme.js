// Light, dark or as the system has it: the reader's last choice, before anything is painted.
(() => {
  const sheet = document.getElementById("dark");
  const media = { auto: sheet.media, light: "not all", dark: "screen" };
  const root = document.documentElement;
  window.postmortemTheme = (name) => {
    root.dataset.theme = Object.hasOwn(media, name) ? name : "auto";
    sheet.media = media[root.dataset.theme];
  };
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("postmortem-theme");
  } catch { /* some browsers close it to files */ }
  window.postmortemTheme(chosen);
})();
