// What was given to be learned and is not yet: kept by this browser until it is, so that closing the page loses nothing.
const opened = new Promise((done) => {
  try {
    const asked = indexedDB.open("safecl", 1);
    asked.onupgradeneeded = () => {
      asked.result.createObjectStore("pictures", { autoIncrement: true });
      asked.result.createObjectStore("drafts");
    };
    asked.onsuccess = () => done(asked.result);
    asked.onerror = asked.onblocked = () => done(null);
  } catch {
    done(null); // a browser that keeps nothing: the page works all the same
  }
});

async function on(store, mode, does) {
  const base = await opened;
  if (!base) return undefined;
  return new Promise((done) => {
    try {
      const task = base.transaction(store, mode), asked = does(task.objectStore(store));
      task.oncomplete = () => done(asked?.result);
      task.onerror = task.onabort = () => done(undefined); // such as a full disk
    } catch {
      done(undefined);
    }
  });
}

// Gives the number of the picture; undefined where it could not be kept.
export const keepPicture = (file) => on("pictures", "readwrite", (store) => store.add(file));
export const readPicture = (id) => on("pictures", "readonly", (store) => store.get(id));
export const dropPicture = (id) => id === undefined || on("pictures", "readwrite", (store) => store.delete(id));

// draft: { groups: [{ label, ids }], name, job }, by the name of the model.
export const readDraft = (model) => on("drafts", "readonly", (store) => store.get(model));
export const writeDraft = (model, draft) =>
  on("drafts", "readwrite", (store) => (draft ? store.put(draft, model) : store.delete(model)));

export async function dropDraft(model) {
  for (const { ids } of (await readDraft(model))?.groups || []) await Promise.all(ids.map(dropPicture));
  await writeDraft(model, undefined);
}
