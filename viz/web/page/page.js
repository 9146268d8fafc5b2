// The stand-alone page: data from the document, the step in the address.

import { mount } from "./app.js";

const SETTLED_MS = 150;

const data = JSON.parse(document.getElementById("data").textContent);

try {
  const app = await mount(document.getElementById("replay"), data, { keyTarget: document });
  window.replay = app;
  followAddress(app);
  document.body.dataset.state = "ready";
} catch (error) {
  document.body.dataset.state = "failed";
  document.getElementById("problem").textContent = `This page could not be drawn: ${error.message}`;
  throw error;
}

/** `#step=41` goes there; the step one stays at is written there, without a new entry in the history. */
function followAddress(app) {
  let written = null;
  let timer = 0;
  const read = () => {
    const step = new URLSearchParams(location.hash.slice(1)).get("step");
    if (step !== null && Number.isFinite(Number(step))) app.goToStep(Number(step));
  };
  const write = (step) => {
    written = `#step=${step}`;
    history.replaceState(null, "", written);
  };
  app.onStep = (step) => {
    clearTimeout(timer); // browsers refuse too many changes a second
    if (location.hash !== `#step=${step}`) timer = setTimeout(write, SETTLED_MS, step);
  };
  window.addEventListener("hashchange", () => {
    if (location.hash !== written) read();
  });
  read();
}
