// What every page of routes has: messages, the clipboard and files.
const said = document.getElementById("said");
let silence = 0;

export function say(text) {
  said.textContent = text;
  said.classList.add("shown");
  clearTimeout(silence);
  silence = setTimeout(() => said.classList.remove("shown"), 2500);
}

export async function copy(text, from) {
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

export function download(text, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
