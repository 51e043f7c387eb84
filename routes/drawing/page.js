"use strict";
(() => {
  const LEAST = 0.2, MOST = 5, STEP = 1.25, MOVE = 48, KEPT = 60;
  const READABLE = [0.72, 0.55], WIDE = 700;
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
    say(done ? "Copied " + text : "Copying is not allowed here: " + text);
    if (done && from.matches(".molecule")) {
      from.classList.add("copied");
      setTimeout(() => from.classList.remove("copied"), 900);
    }
  }

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  class View {
    constructor(element) {
      this.element = element;
      this.svg = element.querySelector("svg");
      this.width = Number(this.svg.getAttribute("width"));
      this.height = Number(this.svg.getAttribute("height"));
      this.output = element.closest(".body").querySelector("output");
      this.pointers = new Map();
      this.fit();
      new ResizeObserver(() => this.touched ? this.apply() : this.fit()).observe(element);
    }

    fit() {
      // as large as fits, but never so small that letters cannot be read: then the picture is moved instead
      // (on a wide screen, which is near and can be leant to, a little smaller to show the whole route)
      const least = READABLE[Number(this.element.clientWidth > WIDE)];
      this.scale = clamp(this.element.clientWidth / this.width, least, 1);
      const room = Math.max(240, window.innerHeight * 0.8);
      this.element.style.height = Math.ceil(Math.min(this.height * this.scale, room)) + 2 + "px";
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
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }));
    link.download = view.element.dataset.name + ".svg";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
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
    else if (button?.dataset.all) document.querySelectorAll(".route > details").forEach(d => d.open = button.dataset.all === "open");
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

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll(".route > details:not([open])")];
    closed.forEach(details => details.open = true);
  });
  window.addEventListener("afterprint", () => closed.forEach(details => details.open = false));
})();
