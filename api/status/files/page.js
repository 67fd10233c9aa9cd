"use strict";
// Brings the pieces of the page up to date: every two seconds while somebody looks, at once on news of a gate.

const EVERY = 2000;
const main = document.querySelector("main");
const search = document.getElementById("search");

function query() {
  const wanted = new URLSearchParams();
  if (search.value.trim()) wanted.set("search", search.value.trim());
  if (main.dataset.namespace) wanted.set("namespace", main.dataset.namespace);
  const text = wanted.toString();
  return text ? "?" + text : "";
}

const shown = new Map();

// Finds an element again once its piece was rendered anew: what is looked at goes on changing, and keeps the focus.
function where(element) {
  const details = element.closest("details");
  if (details) return `details[data-holders="${CSS.escape(details.dataset.holders)}"] > summary`;
  return element.matches("a[href]") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : "";
}

// Somebody marks a text to copy it: it stays until then.
function selected(place) {
  const selection = getSelection();
  return !selection.isCollapsed && place.contains(selection.anchorNode);
}

function put(place, text) {
  const name = place.dataset.piece;
  if (shown.get(name) === text || selected(place)) return;
  shown.set(name, text);
  const focused = place.contains(document.activeElement) ? where(document.activeElement) : "";
  const open = new Set([...place.querySelectorAll("details[open]")].map((each) => each.dataset.holders));
  const kept = new Map([...place.querySelectorAll("details[open]")].map((each) => [each.dataset.holders, each]));
  const scrolled = place.querySelector(".scroll")?.scrollTop;
  place.innerHTML = text; // rendered by the server, which escapes
  if (scrolled) place.querySelector(".scroll")?.scrollTo({ top: scrolled, behavior: "instant" });
  for (const each of place.querySelectorAll("details")) {
    if (open.has(each.dataset.holders)) each.replaceWith(kept.get(each.dataset.holders));
  }
  if (focused) place.querySelector(focused)?.focus({ preventScroll: true });
}

const places = [...document.querySelectorAll("[data-piece]")];

// All pieces are of one look of the server: their numbers agree. An answer that another one overtook is left out.
let asked = 0;
async function renewAll() {
  const number = ++asked;
  try {
    const answer = await fetch("/pieces" + query());
    if (answer.status === 401) return location.reload();
    if (!answer.ok) throw new Error(String(answer.status));
    const found = await answer.json();
    if (number !== asked) return;
    document.body.classList.remove("lost");
    main.classList.toggle("few", found.few);
    for (const place of places) put(place, found.pieces[place.dataset.piece]);
  } catch {
    document.body.classList.add("lost");
  }
}

async function keepGoing() {
  for (;;) {
    await new Promise((next) => setTimeout(next, EVERY));
    if (!document.hidden) await renewAll();
  }
}
keepGoing();

let soon = 0;
search.addEventListener("input", () => {
  clearTimeout(soon);
  soon = setTimeout(() => { shown.clear(); renewAll(); }, 150);
});
search.form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
});

let news = 0;
function listen() {
  const namespace = main.dataset.namespace;
  const stream = new EventSource("/v1/decisions" + (namespace ? "?namespace=" + encodeURIComponent(namespace) : ""));
  stream.addEventListener("decision", () => {
    clearTimeout(news);
    news = setTimeout(renewAll, 100);
  });
}
if (!document.querySelector("#decisions .empty b")) listen();

document.addEventListener("toggle", async (event) => {
  const details = event.target;
  if (!details.open || !details.dataset.holders) return;
  const place = details.querySelector(".holders");
  place.textContent = "reading…";
  try {
    const answer = await fetch("/pieces/holders?namespace=" + encodeURIComponent(details.dataset.holders));
    if (answer.ok) place.innerHTML = await answer.text(); // rendered by the server, which escapes
    else place.textContent = (await answer.json()).detail;
  } catch { place.textContent = "no answer: try again"; }
}, true);

const words = {
  create: { now: "It would be created now.", wait: "It would wait.", never: "It never fits.",
            refused: "It would be refused.", unknown: "Too little is known about the quotas to say." },
  pods: { now: "All objects that it makes would fit now.", wait: "The objects that it makes would not all fit now.",
          never: "The objects that it makes never fit.", refused: "Its pods would be refused.",
          unknown: "Too little is known to say whether the objects that it makes would fit." },
};

function line(parent, text, kind) {
  const made = document.createElement("p");
  made.textContent = text;
  if (kind) made.className = kind;
  parent.append(made);
}

document.getElementById("explain").addEventListener("submit", async (event) => {
  event.preventDefault();
  const output = document.getElementById("explained");
  const text = document.getElementById("manifest").value;
  const namespace = document.getElementById("explain-namespace").value.trim();
  const wanted = new URLSearchParams();
  if (namespace) wanted.set("namespace", namespace);
  if (document.getElementById("confirm")?.checked) wanted.set("confirm", "true");
  const kind = text.trimStart().startsWith("{") ? "application/json" : "application/yaml";
  output.replaceChildren();
  try {
    const answer = await fetch("/v1/explain?" + wanted,
                               { method: "POST", headers: { "Content-Type": kind }, body: text });
    const found = await answer.json();
    if (!answer.ok) return line(output, found.detail, "verdict refused");
    for (const part of found.parts) {
      line(output, words[part.part][part.verdict] || part.verdict, "verdict " + part.verdict);
      for (const why of part.why) line(output, why, "why");
      for (const b of part.blockers) {
        line(output, `quota ${b.quota}: ${b.resource} asks ${b.asked}, left ${b.left} of ${b.limited}`, "why");
      }
    }
    const server = found.confirmation;
    if (server) {
      const said = { true: "The API server agrees.", false: "The API server disagrees.", null: "The API server was asked." };
      line(output, said[server.agrees], "verdict " + server.verdict);
      line(output, server.message || words.create[server.verdict], "why");
      for (const each of server.untold) line(output, "A dry run can't show: " + each, "note");
    }
    if (found.note) line(output, found.note, "note");
  } catch { line(output, "no answer: try again", "verdict refused"); }
});
