// The page on which a route is built step by step.
import { copy, download, say } from "./share.js";
import { ask, rows } from "./server.js";
import { canRedo, canUndo, edit, madeBy, nodes, prune, reaction, readAddress, session, sessionOf } from "./session.js";
import { viewOf, watchViews } from "./view.js";

const part = Object.fromEntries([...document.querySelectorAll("[id]")].map(element => [element.id, element]));
const acts = Object.fromEntries([...document.querySelectorAll("[data-act]")].map(button => [button.dataset.act, button]));
let opened = null;  // the number of the molecule whose reactions are shown
let target = null;  // the molecule that the route makes
let open = [];  // the molecules that are left to make or to buy
let proposals = new Map();
let again = () => {};
const running = {};

// Let the latest job of a kind end the one before, and show why a job fails.
async function run(kind, job) {
  running[kind]?.abort();
  const { signal } = running[kind] = new AbortController();
  try {
    part.problem.hidden = true;
    await job(signal);
  } catch (error) {
    if (error.name === "AbortError") return;  // another job has ended this one
    part.problem.firstElementChild.textContent = error.message;
    part.problem.hidden = false;
    again = () => run(kind, job);
  }
}

const molecules = () => [...part.tree.querySelectorAll(".molecule")];
const nodeAt = index => nodes(session.route)[index];
const wishes = above => ({ have: session.have, forbidden: [...new Set([...session.forbidden, ...above])] });

// Draw the tree, and then do what needs the picture.
function draw(then = () => {}) {
  for (const [name, can] of [["undo", canUndo()], ["redo", canRedo()]]) acts[name].disabled = !can;
  part.acts.hidden = part.tree.hidden = part.lists.hidden = !session.route;
  part.intro.hidden = Boolean(session.route);
  if (!nodeAt(opened)) close();
  if (!session.route) return;
  if (target !== session.route.smiles) part.text.value = target = session.route.smiles;
  return run("draw", async signal => {
    part.tree.setAttribute("aria-busy", "true");
    const drawn = await (await ask("build", session, signal)).json();
    part.tree.innerHTML = drawn.html;
    part.tree.removeAttribute("aria-busy");
    open = drawn.open;
    part.lists.replaceChildren(...part.tree.querySelectorAll(".body > .steps, .needs, .body > .offer, .buy"));
    if (acts.rest) acts.rest.disabled = !open.length;  // without a stock, there is none
    viewOf(part.tree.querySelector(".view"));
    molecules()[opened]?.classList.add("opened");
    then();
  });
}

function focusOn(index) {
  const molecule = molecules()[index];
  if (!molecule) return;
  molecule.focus();
  viewOf(molecule).show(molecule);
}

// Show the reactions that make a molecule of the tree.
function show(index) {
  const { node, above } = nodeAt(index), { smiles } = node;
  opened = index;
  molecules().forEach((molecule, number) => molecule.classList.toggle("opened", number === index));
  part.made.textContent = smiles;
  const wanted = [!session.have.includes(smiles) && smiles, index && smiles, node.children && madeBy(node), node.children && String(index), smiles];
  for (const [place, about] of [...part.of.children].entries()) {  // in the order of these
    about.hidden = !wanted[place];
    about.dataset[about.className] = wanted[place];
  }
  part.cards.replaceChildren();
  part.state.textContent = "Searching …";
  part.panel.hidden = false;
  part.made.focus({ preventScroll: true });
  part.panel.scrollIntoView();
  proposals = new Map();
  return run("expand", async signal => {
    part.cards.replaceChildren();  // of a first try that failed
    for await (const row of rows(await ask("expand", { smiles, html: true, ...wishes(above) }, signal))) {
      if (row.html) addCard(row, node);
      else part.state.textContent = [`${row.found} reaction${row.found === 1 ? "" : "s"}.`, ...row.remarks].join(" ");
    }
  }).finally(() => { if (!part.problem.hidden) part.state.textContent = ""; });
}

function addCard(row, node) {
  proposals.set(row.rank, row);
  part.cards.insertAdjacentHTML("beforeend", row.html);
  const isChosen = reaction(row.reactants.map(reactant => reactant.smiles), node.smiles) === madeBy(node);
  part.cards.lastElementChild.classList.toggle("chosen", isChosen);
}

function close() {
  const was = opened;
  running.expand?.abort();
  part.panel.hidden = true;
  molecules()[was]?.classList.remove("opened");
  opened = null;
  return was;
}

// Grow the tree at the molecule that is open, and go to the first of the reactants that is not in stock.
function choose(rank) {
  const { reactants } = proposals.get(rank), index = close();
  edit(next => { nodes(next.route)[index].node.children = reactants.map(({ smiles }) => ({ smiles })); });
  const left = reactants.findIndex(reactant => reactant.in_stock !== true);
  draw(() => focusOn(left < 0 ? index : index + 1 + left));
}

// Change the lists of the session, and ask for everything again.
function wish(change) {
  edit(change);
  const isThere = opened !== null && molecules()[opened].dataset.smiles === nodeAt(opened)?.node.smiles;
  if (isThere) show(opened); else close();
  draw();
}

// Search routes to the molecules that are left, one after the other. The tree so far stays.
function planRest() {
  return run("plan", async signal => {
    let isPart = false;
    const unsolved = [];
    acts.stop.hidden = false;
    try {
      for (const [number, smiles] of open.entries()) {
        acts.stop.textContent = `Stop planning (${number + 1} of ${open.length})`;
        const above = nodes(session.route).filter(({ node }) => node.smiles === smiles).flatMap(({ above }) => above);
        const body = { targets: [smiles], num_routes: 1, max_routes: 1, ...wishes(above) };
        const { plans: [plan] } = await (await ask("plan", body, signal)).json();
        if (!plan.solved) unsolved.push(smiles);
        else edit(next => {
          for (const { node } of nodes(next.route)) if (node.smiles === smiles && !node.children) node.children = sessionOf(plan).route.children;
        }, isPart);
        isPart ||= plan.solved;
      }
    } finally {
      acts.stop.hidden = true;
      if (isPart) draw();
      say(signal.aborted ? "Stopped." : "Planned.");
    }
    if (unsolved.length) throw new Error(`No route by recorded steps to the stock was found for ${unsolved.join(", ")}.`);
  });
}

function begin() {
  return run("begin", async signal => {
    const { smiles } = await (await ask("build", { text: part.text.value }, signal)).json();
    if (smiles !== session.route?.smiles) edit(next => { next.route = { smiles }; });
    close();
    draw();
    show(0);
  });
}

function load(file) {
  return run("load", async () => {
    const found = sessionOf(await new Response(file).json().catch(() => null));
    if (!found.route) throw new Error(`${file.name} has no route.`);
    close();
    edit(next => Object.assign(next, found));
    draw();
  });
}

const ACTS = {
  undo: () => canUndo() && history.back(),
  redo: () => canRedo() && history.forward(),
  rest: planRest,
  stop: () => running.plan?.abort(),
  save: () => download(JSON.stringify(session) + "\n", "application/json", "route.json"),
  open: () => part.file.click(),
  close: () => focusOn(close()),
  again: () => again(),
};
const CLICKS = {
  act: name => ACTS[name](),
  copy: (smiles, from) => copy(smiles, from),
  choose: rank => choose(Number(rank)),
  have: smiles => wish(next => next.have.push(smiles)),
  forbid: unwanted => wish(next => { next.forbidden.push(unwanted); prune(next.route, unwanted); }),
  drop: wanted => wish(next => { for (const name of ["have", "forbidden"]) next[name] = next[name].filter(text => text !== wanted); }),
  remove: index => wish(next => { delete nodes(next.route)[index].node.children; }),
};

document.addEventListener("click", event => {
  const clicked = event.target.closest("button");
  for (const [name, act] of Object.entries(CLICKS)) if (clicked?.dataset[name] !== undefined) act(clicked.dataset[name], clicked);
});
document.addEventListener("keydown", event => {
  const key = event.key.toLowerCase(), isText = event.target.matches("textarea, input");
  if (key === "escape" && opened !== null) ACTS.close();
  else if (key === "enter" && event.target === part.text && !event.shiftKey && !part.text.value.includes("\n")) part.start.requestSubmit();
  else if ((event.ctrlKey || event.metaKey) && !isText && key === "z") ACTS[event.shiftKey ? "redo" : "undo"]();
  else return;
  event.preventDefault();
});
part.start.addEventListener("submit", event => { event.preventDefault(); begin(); });
part.file.addEventListener("change", () => { if (part.file.files[0]) load(part.file.files[0]); part.file.value = ""; });
part.export.addEventListener("change", () => run("export", async signal => {
  const ending = part.export.value;
  part.export.value = "";
  const { route, have } = session;
  download(await (await ask("build", { route, have, file: ending }, signal)).blob(), "application/octet-stream", "route" + ending);
}));
window.addEventListener("popstate", () => { readAddress(); close(); draw(); });
watchViews(molecule => show(molecules().indexOf(molecule)));

const at = readAddress();
draw(() => { if (at) show(Math.max(0, nodes(session.route).findIndex(({ node }) => node.smiles === at))); });
