// Moves an edit to the version that is current by now.

import { call } from '../api.js';
import { draft } from '../draft.js';
import { mergeFiles } from '../merge.js';

/** Gives the version that it is based on now, and the files where both changed the same lines. */
export async function rebase() {
  const { version, files } = await call('GET', 'versions/current');
  const name = `version ${version.number} by ${version.author}`;
  const merged = mergeFiles(draft.origin, draft.files, files, name);
  draft.restart(version.number, files, merged.files);
  return { version, conflicts: merged.conflicts };
}
