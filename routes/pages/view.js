// Pictures of routes: zoom, movement and the keyboard.
import { download } from "./share.js";

const LEAST = 0.2, MOST = 5, STEP = 1.25, MOVE = 48, KEPT = 60, READABLE = 0.72;
export const views = new WeakMap();

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
    this.output.textContent = Math.round(this.scale * 100) + "%";
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

export function viewOf(element) {
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
  download(new XMLSerializer().serializeToString(svg), "image/svg+xml", view.element.dataset.name + ".svg");
}

export const ACTIONS = {
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

// `choose` is called with a molecule that is clicked, or entered with the keyboard.
export function watchViews(choose) {
  document.addEventListener("click", event => {
    const button = event.target.closest("button"), molecule = event.target.closest(".molecule[data-smiles]");
    if (button?.dataset.do) ACTIONS[button.dataset.do](viewOf(button));
    else if (molecule && !(viewOf(molecule)?.travelled >= 4)) choose(molecule);
  });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !event.target.closest(".view")) return;
    const molecule = event.target.closest("[data-smiles]");
    if (molecule && (event.key === "Enter" || event.key === " ")) choose(molecule);
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
}
