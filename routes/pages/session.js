// What is being built: a route with the lists of its session. The address holds it, and the history of the browser has
// its changes, so that a link opens it, each tab has its own, and nothing is lost without a server.
export let session = { route: null, have: [], forbidden: [] };
let place = 0, last = 0;

const texts = list => Array.isArray(list) ? list.filter(text => typeof text === "string") : [];

// The session of a saved file, of an address, or of the first route of a plan.
export function sessionOf(data) {
  const first = Array.isArray(data) ? data[0] : data;
  const found = first?.candidates?.find(candidate => candidate.route) ?? first;
  const route = found?.route ?? (found?.smiles ? found : null);
  return { route: route && treeOf(route), have: texts(found?.have), forbidden: texts(found?.forbidden) };
}

function treeOf({ smiles, children }) {
  const tree = { smiles: String(smiles) };
  if (Array.isArray(children) && children.length) tree.children = children.map(treeOf);
  return tree;
}

// Read the address. Return the molecule that it names to be opened, if there is one.
export function readAddress() {
  let data = null;
  session = sessionOf(data);
  try {
    const read = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    session = sessionOf(read);
    data = read;
  } catch { /* there is none, or it was cut or changed */ }
  place = history.state?.place ?? 0;
  last = Math.max(last, place);
  return data?.at;
}

// Change a copy of the session, and write it into the address: as a step of the history, or as part of the one before.
export function edit(change, isPart = false) {
  const next = structuredClone(session);
  change(next);
  session = next;
  const address = "#" + encodeURIComponent(JSON.stringify(session));
  if (isPart) history.replaceState({ place }, "", address);
  else history.pushState({ place: last = ++place }, "", address);
}

export const canUndo = () => place > 0;
export const canRedo = () => place < last;

// The molecules of a tree, depth first as in its picture, each with those that are made from it.
export function nodes(tree, above = []) {
  return tree ? [{ node: tree, above }, ...(tree.children ?? []).flatMap(child => nodes(child, [...above, tree.smiles]))] : [];
}

export const reaction = (reactants, product) => reactants.join(".").split(".").sort().join(".") + ">>" + product;
export const madeBy = node => reaction((node.children ?? []).map(child => child.smiles), node.smiles);

// Remove the branches of a tree that a molecule or a reaction is no longer part of.
export function prune(tree, unwanted) {
  const [reactants, product] = unwanted.split(">>");
  const isUnwanted = product ? madeBy(tree) === reaction([reactants], product) : tree.children?.some(child => child.smiles === unwanted);
  if (isUnwanted) delete tree.children;
  tree.children?.forEach(child => prune(child, unwanted));
}
