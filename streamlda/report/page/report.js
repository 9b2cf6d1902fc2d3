// The script of a report. All that the page says of topics is there without it: it words, orders
// and searches the cards, and shows on the map which topics are meant.
"use strict";

const at = (id) => document.getElementById(id);
const data = JSON.parse(at("data").textContent);
const topics = new Map(data.topics.map((topic) => [topic.id, topic]));
const cards = new Map([...at("cards").children].map((card) => [Number(card.id.slice(6)), card]));
const circles = new Map(
  [...document.querySelectorAll(".map a")].map((link, i) => [data.topics[i].id, link]),
);

const NOTHING = "–";
const LEAST = -Infinity;
const ORDERS = {
  share: (a, b) => (b.share ?? LEAST) - (a.share ?? LEAST),
  npmi: (a, b) => (b.npmi ?? LEAST) - (a.npmi ?? LEAST),
  id: (a, b) => a.id - b.id,
};

function percent(share) {
  return share === null ? NOTHING : `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %`;
}

function element(tag, text = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

function drawn(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// A word that runs from the right, isolated: those around it stay in their order.
function isolated(word) {
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(word) ? `\u2068${word}\u2069` : word;
}

function order() {
  const sorted = [...data.topics].sort(ORDERS[at("order").value]);
  at("cards").append(...sorted.map((topic) => cards.get(topic.id)));
}

// The first words of a topic by relevance: weight log p + (1 - weight) log(p / usual).
function relevant(topic, weight, n = data.shown) {
  const found = topic.words.map((word, i) => {
    const p = topic.chances[i];
    const lift = p / data.usual[word];
    const known = weight === 1 || (p > 0 && Number.isFinite(lift));
    return { text: data.words[word], p, usual: data.usual[word], lift, rank: known ? weight * Math.log(p) + (1 - weight) * Math.log(lift) : LEAST };
  });
  // The words come in the order of the model.
  if (weight !== data.relevance) found.sort((a, b) => b.rank - a.rank || 0);
  return found.slice(0, n);
}

// What is said of a word beside its bar.
function value(each, weight) {
  if (weight === 1) return percent(each.p);
  return `× ${each.lift < 1000 ? each.lift.toPrecision(3) : Math.round(each.lift)}`;
}

function word() {
  const weight = Number(at("relevance").value);
  const name = weight === 1 ? "most probable" : weight === 0 ? "most distinctive" : "by both";
  at("weight").textContent = `λ ${weight.toFixed(2)}, ${name}`;
  for (const topic of data.topics) {
    const words = relevant(topic, weight);
    const most = Math.max(...words.map((each) => each.p)) || 1;
    const rows = cards.get(topic.id).querySelectorAll(".words > li");
    rows.forEach((row, i) => {
      const each = words[i];
      row.hidden = each === undefined;
      if (row.hidden) return;
      const text = row.querySelector(".word");
      text.textContent = text.title = each.text;
      row.querySelector("rect").setAttribute("width", `${((100 * each.p) / most).toFixed(1)}%`);
      row.querySelector(".value").textContent = value(each, weight);
    });
  }
  find();
}

// The words that a card shows at one weight or another.
const ofCards = new Map();
function onCard(topic) {
  if (!ofCards.has(topic.id)) {
    const weights = Array.from({ length: 21 }, (_, i) => i / 20);
    const texts = weights.flatMap((weight) => relevant(topic, weight).map((each) => each.text));
    ofCards.set(topic.id, [...new Set(texts)].map((text) => places.get(text)));
  }
  return ofCards.get(topic.id);
}

// Cards without the word, in a name or below, go; circles that have it stand out. A word may be one of those that a
// card shows at another weight.
function find() {
  const wanted = at("find").value.trim().toLocaleLowerCase();
  const has = data.words.map((text) => text.toLocaleLowerCase().includes(wanted));
  const hits = [];
  for (const topic of data.topics) {
    const card = cards.get(topic.id);
    const named = (topic.name ?? "").toLocaleLowerCase().includes(wanted);
    const hit = wanted !== "" && (named || onCard(topic).some((i) => has[i]));
    for (const text of card.querySelectorAll(".word")) {
      const here = wanted !== "" && text.textContent.toLocaleLowerCase().includes(wanted);
      text.parentElement.classList.toggle("hit", here);
    }
    card.hidden = wanted !== "" && !hit;
    if (hit) hits.push(topic.id);
    circles.get(topic.id).classList.toggle("hit", hit);
  }
  document.querySelector(".map").classList.toggle("searched", wanted !== "");
  at("found").textContent = wanted === "" ? "" : `${hits.length} of ${cards.size} topics`;
  choose(hits.length === 0 || hits.includes(chosen) ? chosen : hits[0]);
  divide(sought());
}

// Circles show how the tokens of a word divide among topics, instead of prevalence.
const map = document.querySelector(".map");
const radii = new Map([...circles].map(([id, link]) => [id, link.querySelector("circle").getAttribute("r")]));
const places = new Map(data.words.map((text, i) => [text, i]));
const SMALL = 8; // a circle that has no room for its number
const sought = () => at("find").value.trim();

function divide(text) {
  const given = data.given[places.get(text)];
  const parts = new Map();
  for (let i = 0; i < (given?.length ?? 0); i += 2) parts.set(data.topics[given[i]].id, given[i + 1]);
  map.classList.toggle("divided", given !== undefined);
  for (const [id, link] of circles) {
    const part = parts.get(id) ?? 0;
    const radius = given === undefined ? radii.get(id) : Math.max(1.5, map.dataset.full * Math.sqrt(part / 100));
    link.querySelector("circle").setAttribute("r", radius);
    link.classList.toggle("small", given !== undefined && radius < SMALL);
  }
  const largest = [...parts].sort((a, b) => b[1] - a[1]).slice(0, 5);
  at("tokens").textContent = given === undefined
    ? "Point at a word: circles show how its tokens divide among topics."
    : `Tokens of ${text}: ${largest.map(([id, part]) => `${part} % in Topic ${id}`).join(", ")}.`;
}

// The words of the chosen topic, with their tokens in it over those in all documents.
function listed(topic) {
  const weight = Number(at("relevance").value);
  const words = relevant(topic, weight, data.listed);
  const most = Math.max(...words.map((each) => Math.max(each.usual, topic.weight * each.p))) || 1;
  const list = element("ol");
  list.className = "words";
  list.setAttribute("aria-label", "Words");
  for (const each of words) {
    const row = element("li");
    const text = element("span", each.text);
    [text.className, text.dir] = ["word", "auto"];
    text.title = `${each.text}: ${percent(each.p)} of this topic, ${percent(each.usual)} of all tokens`;
    const bar = drawn("svg", { class: "size", "aria-hidden": "true" });
    for (const [kind, share] of [["usual", each.usual], ["own", topic.weight * each.p]]) {
      bar.append(drawn("rect", { class: kind, width: `${((100 * share) / most).toFixed(1)}%`, height: "100%", rx: 2 }));
    }
    const said = element("span", value(each, weight));
    said.className = "value";
    row.append(text, bar, said);
    list.append(row);
  }
  return list;
}

function legend() {
  const made = element("p");
  made.className = "quiet legend";
  for (const [kind, text] of [["own", "tokens in this topic"], ["usual", "in all documents"]]) {
    const swatch = drawn("svg", { class: "size", "aria-hidden": "true" });
    swatch.append(drawn("rect", { class: kind, width: "100%", height: "100%", rx: 2 }));
    const pair = element("span");
    pair.append(swatch, text);
    made.append(pair);
  }
  return made;
}

// Shows the card of a topic beside the map, with more of its words, and its line over time.
let chosen = data.topics[0].id;
let onChoose = () => {};
function choose(id) {
  chosen = id;
  const copy = cards.get(id).cloneNode(true);
  for (const part of copy.querySelectorAll("[id]")) part.removeAttribute("id");
  for (const part of copy.querySelectorAll("details")) part.remove();
  copy.querySelector(".words").replaceWith(listed(data.topics.find((topic) => topic.id === id)), legend());
  at("detail").replaceChildren(...copy.children);
  for (const [other, link] of circles) link.classList.toggle("chosen", other === id);
  for (const line of document.querySelectorAll(".lines [data-topic]")) {
    line.classList.toggle("chosen", Number(line.dataset.topic) === id);
  }
  onChoose();
}

for (const section of document.querySelectorAll("main section")) {
  const item = document.createElement("li");
  const link = element("a", section.querySelector("h2").textContent);
  link.href = `#${section.id}`;
  item.append(link);
  at("contents").append(item);
}

for (const [id, link] of circles) {
  link.addEventListener("focus", () => choose(id));
  link.addEventListener("pointerenter", () => choose(id));
}

// A word that is clicked is searched: which topics have it? One that is pointed at is divided.
for (const place of [at("cards"), at("detail")]) {
  place.addEventListener("pointerover", (event) => {
    divide(event.target.closest(".words > li")?.querySelector(".word").textContent ?? sought());
  });
  place.addEventListener("pointerleave", () => divide(sought()));
  place.addEventListener("click", (event) => {
    const text = event.target.closest(".word")?.textContent;
    if (text === undefined) return;
    at("find").value = at("find").value === text ? "" : text;
    find();
  });
}

// A link to a topic chooses it, and brings back a card that the search has hidden.
function follow(id) {
  const target = at(id);
  if (!target?.classList.contains("card")) return;
  if (target.hidden) {
    at("find").value = "";
    find();
    target.scrollIntoView();
  }
  choose(Number(id.slice(6)));
}

// In the frame of a notebook, links would leave the page for the notebook's own address.
document.addEventListener("click", (event) => {
  const id = event.target.closest('a[href^="#"]')?.getAttribute("href").slice(1);
  if (id === undefined || location.protocol !== "about:") return;
  event.preventDefault();
  follow(id);
  at(id).scrollIntoView();
  at(id).focus({ preventScroll: true });
});

const followAddress = () => follow(decodeURIComponent(location.hash.slice(1)));

let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const details of opened) details.open = true;
});
window.addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});

window.addEventListener("hashchange", followAddress);
at("order").addEventListener("change", order);
at("relevance").addEventListener("input", word);
at("find").addEventListener("input", find);
at("controls").hidden = false;
at("detail").hidden = false;
// A browser may keep what was chosen when the page is loaded again.
order();
word();
followAddress();
