// The list of what to buy.
import { copy, download } from "./share.js";

// What the routes begin from, and the links to those routes that are shown and open.
export const needs = () => [...document.querySelectorAll("[data-need]")];
export const neededBy = row => [...row.querySelectorAll("a")].filter(link => document.querySelector(`${link.hash}:not([hidden]) > details[open]`));
const STOCK = { "in-stock": "sold", common: "common", missing: "no", unknown: "" };
const OFFER = ["form", "sold_as", "price", "unit", "vendor", "catalogue_number", "reactions"];
// A spreadsheet evaluates a cell that begins like this, unless it is a number. A leading quote makes it text.
const FORMULA = /^[=+\-@\t\r](?![\d.,]+$)/;
const plain = text => FORMULA.test(text) ? `'${text}` : text;
const quoted = text => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
function table() {
  const rows = needs().filter(row => !row.hidden).map(row => {
    return [row.dataset.need, STOCK[row.className], neededBy(row).map(link => link.textContent).join(" "), ...OFFER.map(name => row.dataset[name] ?? "")];
  });
  return [["smiles", "stock", "routes", ...OFFER], ...rows];
}
const BUY = {
  copy: button => copy(table().slice(1).map(([smiles]) => smiles).join("\n"), button),
  save: () => download(table().map(row => row.map(plain).map(quoted).join(",") + "\r\n").join(""), "text/csv", "to-buy.csv"),
};

document.addEventListener("click", event => {
  const button = event.target.closest("[data-buy]");
  if (button) BUY[button.dataset.buy](button);
});
