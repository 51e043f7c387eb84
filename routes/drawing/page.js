"use strict";
(() => {
  const LEAST = 0.2, MOST = 5, STEP = 1.25, MOVE = 48, KEPT = 60;
  // on a phone, which is near the eye and zooms with two fingers, the whole of a usual route comes first
  const READABLE = matchMedia("(max-width: 620px)").matches ? 0.36 : 0.72;
  const views = new Map();
  const said = document.getElementById("said");
  let silence = 0;
  document.documentElement.classList.add("js");

  function say(text) {
    said.textContent = text;
    said.classList.add("shown");
    clearTimeout(silence);
    silence = setTimeout(() => said.classList.remove("shown"), 2500);
  }

  async function copy(text, from) {
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {  // pages opened from a file often have no clipboard of their own
      const area = document.createElement("textarea");
      area.value = text;
      area.setAttribute("readonly", "");
      area.className = "shared";
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
      from.focus({ preventScroll: true });
    }
    const lines = text.split("\n").length;
    const what = lines > 1 ? lines + " SMILES" : text;
    say(done ? "Copied " + what : "Copying is not allowed here: " + what);
    if (done && from.matches(".molecule")) {
      from.classList.add("copied");
      setTimeout(() => from.classList.remove("copied"), 900);
    }
  }

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  class View {
    constructor(element) {
      this.element = element;
      this.output = element.closest(".body").querySelector("output");
      this.pointers = new Map();
      this.svg = element.firstElementChild;
      this.width = Number(this.svg.getAttribute("width"));
      this.height = Number(this.svg.getAttribute("height"));
      this.fit();
      new ResizeObserver(() => this.touched ? this.apply() : this.fit()).observe(element);
    }

    fit() {
      // as large as fits, but never so small that letters cannot be read: then the picture is moved instead
      this.scale = clamp(this.element.clientWidth / this.width, READABLE, 1);
      this.element.style.height = Math.ceil(this.height * this.scale) + 2 + "px";
      this.x = Math.max(0, (this.element.clientWidth - this.width * this.scale) / 2);
      this.y = Math.min(0, (this.element.clientHeight - this.height * this.scale) / 2);
      this.touched = false;
      this.apply();
    }

    apply() {
      const { clientWidth, clientHeight } = this.element;
      const width = this.width * this.scale, height = this.height * this.scale;
      this.x = clamp(this.x, KEPT - width, clientWidth - KEPT);
      this.y = clamp(this.y, KEPT - height, clientHeight - KEPT);
      this.svg.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
      this.output.textContent = Math.round(this.scale * 100) + " %";
      this.element.classList.toggle("more", this.x + width > clientWidth + 8);
      this.element.classList.toggle("tall", height > clientHeight + 8);
      this.element.classList.toggle("touched", this.touched);
    }

    move(dx, dy) {
      this.x += dx;
      this.y += dy;
      this.touched = true;
      this.apply();
    }

    zoom(factor, x = this.element.clientWidth / 2, y = this.element.clientHeight / 2) {
      const scale = clamp(this.scale * factor, LEAST, MOST);
      // what is under the pointer stays there
      this.x = x - (x - this.x) * scale / this.scale;
      this.y = y - (y - this.y) * scale / this.scale;
      this.scale = scale;
      this.touched = true;
      this.apply();
    }

    show(molecule) {
      const inner = molecule.getBoundingClientRect(), outer = this.element.getBoundingClientRect();
      const shift = (low, high, from, to) => low < from ? from - low + 12 : high > to ? Math.max(to - high - 12, from - low) : 0;
      const dx = shift(inner.left, inner.right, outer.left, outer.right);
      const dy = shift(inner.top, inner.bottom, outer.top, outer.bottom);
      if (dx || dy) this.move(dx, dy);
    }

    place(event) {
      const { left, top } = this.element.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    }

    down(event) {
      if (event.button) return;
      this.pointers.set(event.pointerId, this.place(event));
      this.travelled = this.pointers.size > 1 ? Infinity : 0;
    }

    drag(event) {
      const before = this.pointers.get(event.pointerId);
      if (!before) return;
      const now = this.place(event);
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      this.pointers.set(event.pointerId, now);
      this.travelled += Math.hypot(now[0] - before[0], now[1] - before[1]);
      if (this.travelled < 4) return;  // else a click with an unsteady hand would move the picture
      this.element.setPointerCapture(event.pointerId);
      this.element.classList.add("dragged");
      if (others.length) {
        const [x, y] = others[0];
        const span = at => Math.max(1, Math.hypot(at[0] - x, at[1] - y));
        this.zoom(span(now) / span(before), (now[0] + x) / 2, (now[1] + y) / 2);
      } else {
        this.move(now[0] - before[0], now[1] - before[1]);
      }
    }

    up(event) {
      this.pointers.delete(event.pointerId);
      this.element.classList.remove("dragged");
    }
  }

  function viewOf(element) {
    const found = element.closest?.(".body")?.querySelector(".view");
    if (!found) return null;
    if (!views.has(found)) views.set(found, new View(found));
    return views.get(found);
  }

  function download(text, type, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function save(view) {
    const svg = view.svg.cloneNode(true);
    svg.removeAttribute("style");
    for (const use of svg.querySelectorAll("use")) {  // the file has to stand alone
      const drawing = document.querySelector(use.getAttribute("href")).cloneNode(true);
      drawing.removeAttribute("id");
      drawing.setAttribute("transform", use.getAttribute("transform"));
      use.replaceWith(drawing);
    }
    for (const molecule of svg.querySelectorAll(".molecule"))
      for (const name of ["role", "tabindex", "aria-label", "data-smiles"]) molecule.removeAttribute(name);
    download(new XMLSerializer().serializeToString(svg), "image/svg+xml", view.element.dataset.name + ".svg");
  }

  const ACTIONS = {
    in: view => view.zoom(STEP),
    out: view => view.zoom(1 / STEP),
    fit: view => view.fit(),
    save,
  };
  const KEYS = {
    "+": ACTIONS.in, "=": ACTIONS.in, "-": ACTIONS.out, "_": ACTIONS.out, "0": ACTIONS.fit,
    ArrowLeft: view => view.move(MOVE, 0), ArrowRight: view => view.move(-MOVE, 0),
    ArrowUp: view => view.move(0, MOVE), ArrowDown: view => view.move(0, -MOVE),
  };

  document.addEventListener("click", event => {
    const button = event.target.closest("button"), molecule = event.target.closest("[data-smiles]");
    if (button?.dataset.copy !== undefined) copy(button.dataset.copy, button);
    else if (button?.dataset.all) document.querySelectorAll(".route:not([hidden]) > details").forEach(d => d.open = button.dataset.all === "open");
    else if (button?.dataset.buy) BUY[button.dataset.buy](button);
    else if (button?.dataset.do) ACTIONS[button.dataset.do](viewOf(button));
    else if (molecule && !(viewOf(molecule)?.travelled >= 4)) copy(molecule.dataset.smiles, molecule);
  });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !event.target.closest(".view")) return;
    const molecule = event.target.closest("[data-smiles]");
    if (molecule && (event.key === "Enter" || event.key === " ")) copy(molecule.dataset.smiles, molecule);
    else if (KEYS[event.key]) KEYS[event.key](viewOf(event.target));
    else return;
    event.preventDefault();
  });
  document.addEventListener("focusin", event => {
    if (event.target.matches(".molecule:focus-visible")) viewOf(event.target)?.show(event.target);
  });
  document.addEventListener("wheel", event => {
    const element = event.target.closest(".view");
    if (!element || !event.ctrlKey) return;
    const view = viewOf(element);
    event.preventDefault();
    view.zoom(Math.exp(-clamp(event.deltaY, -60, 60) / 150), ...view.place(event));
  }, { passive: false });
  for (const [name, method] of [["pointerdown", "down"], ["pointermove", "drag"], ["pointerup", "up"], ["pointercancel", "up"]])
    document.addEventListener(name, event => {
      const element = event.target.closest?.(".view");
      if (element) viewOf(element)[method](event);
    });

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
  }, true);
  document.querySelectorAll(".route > details[open] .view").forEach(viewOf);

  // What is shown, and in which order.
  const wanted = document.getElementById("wanted");
  const routes = [...document.querySelectorAll(".route")].map(element => {
    const { rank, score, reactions, number, predicted } = element.dataset;
    return {
      element, number, group: element.parentElement, plan: element.closest(".plan"), rank: Number(rank), score: Number(score ?? 0) || 0, reactions: Number(reactions),
      purchasable: "purchasable" in element.dataset, precedented: "precedented" in element.dataset, predicted: Number(predicted ?? -1), texts: null,
    };
  });
  const of = new Map(routes.map(route => [route.element, route]));
  const ORDERS = {
    rank: () => 0,
    score: (a, b) => b.score - a.score,
    reactions: (a, b) => a.reactions - b.reactions,
    purchasable: (a, b) => b.purchasable - a.purchasable,
    precedented: (a, b) => b.precedented - a.precedented,
    predicted: (a, b) => b.predicted - a.predicted,
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

  function arrange() {
    const { sort, grouped, purchasable, precedented, most, find } = wanted.elements;
    const words = find.value.split(/\s+/).filter(Boolean), order = ORDERS[sort.value];
    const sorted = [...routes].sort((a, b) => order(a, b) || a.rank - b.rank);
    let count = 0;
    for (const route of sorted) {
      const fits = (!purchasable?.checked || route.purchasable) && (!precedented.checked || route.precedented) &&
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
    for (const row of needs) row.hidden = ![...row.querySelectorAll("a")].some(link => !document.getElementById(link.hash.slice(1)).hidden);
    const left = needs.filter(row => !row.hidden).length;
    document.getElementById("needed").textContent = left + " starting material" + (left === 1 ? "" : "s");
    document.getElementById("count").textContent = count === routes.length ? "" : `${count} of ${routes.length} routes shown`;
  }

  // What the routes shown begin from.
  const needs = [...document.querySelectorAll("[data-need]")];
  const STOCK = { "in-stock": "yes", missing: "no", unknown: "" };
  const OFFER = ["form", "sold_as", "price", "unit", "vendor", "catalogue_number"];
  const quoted = text => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  function table() {
    const rows = needs.filter(row => !row.hidden).map(row => {
      const numbers = [...row.querySelectorAll("a")].filter(link => !document.getElementById(link.hash.slice(1)).hidden);
      return [row.dataset.need, STOCK[row.className], numbers.map(link => link.textContent).join(" "), ...OFFER.map(name => row.dataset[name] ?? "")];
    });
    return [["smiles", "in_stock", "routes", ...OFFER], ...rows];
  }
  const BUY = {
    copy: button => copy(table().slice(1).map(([smiles]) => smiles).join("\n"), button),
    save: () => download(table().map(row => row.map(quoted).join(",") + "\r\n").join(""), "text/csv", "to-buy.csv"),
  };

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
})();
