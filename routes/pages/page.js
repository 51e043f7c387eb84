// The page of the routes to some targets, which works without a server.
import { neededBy, needs } from "./buy.js";
import { copy } from "./share.js";
import { viewOf, views, watchViews } from "./view.js";

document.documentElement.classList.add("js");
document.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (button?.dataset.copy !== undefined) copy(button.dataset.copy, button);
  else if (button?.dataset.all) document.querySelectorAll(".route:not([hidden]) > details").forEach(d => d.open = button.dataset.all === "open");
});
watchViews(molecule => copy(molecule.dataset.smiles, molecule));

// Measured when they come near: hundreds that are opened at once would each lay out the page anew.
const near = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    viewOf(target);
  }
}, { rootMargin: "600px" });
document.addEventListener("toggle", event => {
  const element = event.target.open && event.target.querySelector(".view");
  if (element && !views.has(element)) near.observe(element);
  if (event.target.closest(".route")) listNeeds();
}, true);
document.querySelectorAll(".route > details[open] .view").forEach(viewOf);

// What is shown, and in which order.
const wanted = document.getElementById("wanted");
const routes = [...document.querySelectorAll(".route")].map(element => {
  const { rank, score, reactions, number } = element.dataset;
  return {
    element, number, group: element.parentElement, plan: element.closest(".plan"), rank: Number(rank), score: Number(score ?? 0) || 0, reactions: Number(reactions),
    purchasable: "purchasable" in element.dataset, recorded: "recorded" in element.dataset, texts: null,
  };
});
const of = new Map(routes.map(route => [route.element, route]));
const ORDERS = {
  rank: () => 0,
  score: (a, b) => b.score - a.score,
  reactions: (a, b) => a.reactions - b.reactions,
  purchasable: (a, b) => b.purchasable - a.purchasable,
  recorded: (a, b) => b.recorded - a.recorded,
};

// SMILES have to agree letter by letter (C is not c), words need not; a number is that of a route
function has(route, word) {
  route.texts ??= [...new Set([...route.element.querySelectorAll("[data-smiles]")].map(part => part.dataset.smiles))];
  route.words ??= [...route.element.querySelectorAll(".reaction > title")].map(part => part.textContent.toLowerCase());
  const about = route.group.closest(".group").querySelector("h3").textContent.toLowerCase();
  const target = route.plan.querySelector(".smiles").textContent;
  const name = route.plan.querySelector("h2").textContent.split(": ").slice(1).join(": ").toLowerCase();
  return word === route.number || word === route.element.id || target.includes(word) || name.includes(word.toLowerCase()) || about.includes(word.toLowerCase()) ||
    route.texts.some(text => text.includes(word)) || route.words.some(text => text.split(":")[0].includes(word.toLowerCase()));
}

// What to buy is for the routes that are open: those of alternatives add up to much that nobody needs.
function listNeeds() {
  for (const row of needs()) row.hidden = !neededBy(row).length;
  const left = needs().filter(row => !row.hidden).length;
  document.getElementById("needed").textContent = `${left} starting material${left === 1 ? "" : "s"} of the open routes`;
}

function arrange() {
  const { sort, grouped, purchasable, recorded, most, find } = wanted.elements;
  const words = find.value.split(/\s+/).filter(Boolean), order = ORDERS[sort.value];
  const sorted = [...routes].sort((a, b) => order(a, b) || a.rank - b.rank);
  let count = 0;
  for (const route of sorted) {
    const fits = (!purchasable?.checked || route.purchasable) && (!recorded.checked || route.recorded) &&
      (!most.value || route.reactions <= Number(most.value)) && words.every(word => has(route, word));
    route.element.hidden = !fits;
    count += fits;
  }
  const plans = new Map(sorted.map(route => [route.plan, []]));
  for (const route of sorted) plans.get(route.plan).push(route);
  for (const [plan, here] of plans) {
    const flat = plan.querySelector(".flat"), groups = plan.querySelector(".groups");
    flat.hidden = grouped.checked;
    groups.hidden = !grouped.checked;
    // the group of the best route shown comes first
    for (const route of here) (grouped.checked ? route.group : flat).append(route.element);
    const shown = here.filter(route => !route.element.hidden);
    for (const group of groups.children) group.hidden = true;
    for (const group of new Set(shown.map(route => route.group.closest(".group")))) {
      group.hidden = false;
      groups.append(group);
    }
    plan.querySelector(".none").hidden = shown.length > 0;
  }
  listNeeds();
  document.getElementById("count").textContent = count === routes.length ? "" : `${count} of ${routes.length} routes shown`;
}

if (wanted) {
  document.getElementById("filters").open = !matchMedia("(max-width: 620px)").matches;  // a phone has no room for it
  wanted.addEventListener("input", arrange);
  wanted.addEventListener("submit", event => event.preventDefault());
  wanted.addEventListener("reset", () => setTimeout(arrange));  // after the fields have their values back
  arrange();  // browsers keep what was chosen before a page was loaded again
}

// A link to a route opens it, also one that is filtered out.
function follow() {
  const route = of.get(document.getElementById(location.hash.slice(1)));
  if (!route) return;
  if (route.element.hidden) {
    wanted.reset();
    arrange();
  }
  route.element.querySelector("details").open = true;
  route.element.scrollIntoView();
}
window.addEventListener("hashchange", follow);
follow();

let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll(".route > details:not([open]), .buy:not([open])")];
  closed.forEach(details => details.open = true);
});
window.addEventListener("afterprint", () => closed.forEach(details => details.open = false));
