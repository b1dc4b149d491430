// Rebases an edit on the current version.

import { call } from '../api.js';
import { draft } from '../draft.js';
import { mergeFiles } from '../merge.js';

/** Returns the new base version and the files with conflicts. */
export async function rebase() {
  const { version, files } = await call('GET', 'versions/current');
  const name = `version ${version.number} by ${version.author}`;
  const merged = mergeFiles(draft.origin, draft.files, files, name);
  draft.restart(version.number, files, merged.files);
  return { version, conflicts: merged.conflicts };
}
