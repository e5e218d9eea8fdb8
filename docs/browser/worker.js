// Keeps the page, the runtime and the model, so that it answers without a network. A file that the server has
// changed is taken at the next visit with a network: the server is asked first, and only its silence is answered here.
const KEPT = "safecl";
const FILES = ["./", "app.webmanifest", "icon.svg", "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm", "model.onnx"];
const PATIENCE = 3000; // ms that a slow network is waited for

// A file that is not there (the model, where a visitor chooses one) is no reason to keep nothing.
async function keepAll() {
  const kept = await caches.open(KEPT);
  await Promise.all(FILES.map((file) => kept.add(new Request(file, { cache: "no-cache" })).catch(() => {})));
}

async function answer(event) {
  const { request } = event, kept = await caches.open(KEPT), found = await kept.match(request);
  const asked = fetch(request, { cache: "no-cache" });
  event.waitUntil(asked.then((fresh) => fresh.ok && kept.put(request, fresh.clone()), () => {}));
  if (!found) return asked;
  const late = new Promise((done) => setTimeout(done, PATIENCE, found));
  return Promise.race([asked.then((fresh) => (fresh.ok ? fresh : found), () => found), late]);
}

addEventListener("install", (event) => event.waitUntil(keepAll().then(() => skipWaiting())));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  const own = FILES.some((file) => new URL(file, location).pathname === new URL(url).pathname) || event.request.mode === "navigate";
  if (method === "GET" && own && new URL(url).origin === location.origin) event.respondWith(answer(event));
});
