// Requests to the server. An error has the reason in words.
const GONE = "The server cannot be reached. Nothing is lost: the route is in this page and in its address.";
const field = document.getElementById("key");
if (field) field.value = sessionStorage.getItem("weft-key") ?? "";

const reasonOf = error => error.name === "AbortError" ? error : new Error(GONE);

export async function ask(path, body, signal) {
  const headers = { "content-type": "application/json" };
  if (field) {
    headers.authorization = `Bearer ${field.value.trim()}`;
    sessionStorage.setItem("weft-key", field.value);
  }
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal }).catch(error => { throw reasonOf(error); });
  if (response.ok) return response;
  let reason = `The server answered ${response.status}.`;
  try { reason = (await response.json()).detail; } catch { /* an answer of a proxy */ }
  throw new Error(reason);
}

// The rows of a stream of JSON lines.
export async function* rows(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read().catch(error => { throw reasonOf(error); });
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const row of lines.map(line => JSON.parse(line))) {
      if (row.detail) throw new Error(row.detail);
      yield row;
    }
  }
}
