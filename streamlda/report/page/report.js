// The script of a report. All that the page says is there without it: it orders and searches the
// cards, shows on the map whose circle is under the pointer, and opens all for printing.
"use strict";

const at = (id) => document.getElementById(id);
const cards = at("cards");
const all = [...cards.children];

const ORDERS = {
  prevalence: (a, b) => b.dataset.share - a.dataset.share,
  moved: (a, b) => b.dataset.moved - a.dataset.moved,
  id: (a, b) => a.dataset.id - b.dataset.id,
};

function order() {
  cards.append(...[...all].sort(ORDERS[at("order").value]));
}

function kind() {
  cards.dataset.kind = at("kind").value;
}

function find() {
  const wanted = at("find").value.trim().toLocaleLowerCase();
  let shown = 0;
  for (const card of all) {
    let hits = 0;
    for (const word of card.querySelectorAll(".word")) {
      const hit = wanted !== "" && word.textContent.toLocaleLowerCase().includes(wanted);
      word.parentElement.classList.toggle("hit", hit);
      hits += hit;
    }
    card.hidden = wanted !== "" && hits === 0;
    shown += !card.hidden;
  }
  at("found").textContent = wanted === "" ? "" : `${shown} of ${all.length} topics`;
}

function tell(link) {
  const card = document.querySelector(link.getAttribute("href"));
  const list = card.querySelector(cards.dataset.kind === "distinctive" ? ".distinctive" : ".probable");
  const words = [...list.querySelectorAll(".word")].map((word) => word.textContent);
  at("detail-title").textContent =
    `${card.querySelector("h3").textContent}, ${card.querySelector(".share").textContent}`;
  at("detail-words").textContent = words.join(" ");
  at("detail-near").textContent = card.querySelector(".near")?.textContent ?? "";
  for (const other of document.querySelectorAll(".map a")) {
    other.classList.toggle("chosen", other === link);
  }
}

for (const section of document.querySelectorAll("main > section")) {
  const link = document.createElement("a");
  link.href = `#${section.id}`;
  link.textContent = section.querySelector("h2").textContent;
  const item = document.createElement("li");
  item.append(link);
  at("contents").append(item);
}

for (const link of document.querySelectorAll(".map a")) {
  link.addEventListener("focus", () => tell(link));
  link.addEventListener("pointerenter", () => tell(link));
}

// A card that the search has hidden must be there when a link goes to it.
window.addEventListener("hashchange", () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.hidden) {
    at("find").value = "";
    find();
    target.scrollIntoView();
  }
});

let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const details of opened) details.open = true;
});
window.addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});

at("order").addEventListener("change", order);
at("kind").addEventListener("change", kind);
at("find").addEventListener("input", find);
at("controls").hidden = false;
at("detail").hidden = false;
// A browser may keep what was chosen when the page is loaded again.
order();
kind();
find();
