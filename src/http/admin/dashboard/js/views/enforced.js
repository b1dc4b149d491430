// How far a version that was just applied has come.

import { h, text } from '../dom.js';
import { plural } from '../format.js';
import { notice } from '../controls.js';
import { data } from '../poll.js';

/** Says how many instances enforce a version, until all of them do or it is no longer shown. */
export function enforcedNotice({ number }) {
  const line = h('p', { role: 'status' });
  const stop = data.status.subscribe((status) => {
    if (!status) return;
    const all = status.instances.length;
    const those = status.instances.filter((one) => one.version >= number).length;
    const isHere = status.rules.version >= number;
    const isDone = isHere && those === all;
    text(line, isDone ? `Version ${number} is in force: ${all > 1 ? `all ${all} instances enforce it` : 'this instance enforces it'}.`
      : `Version ${number} is current: ${those} of ${plural(all, 'instance', 'instances')} enforce it so far.`);
    if (isDone) queueMicrotask(() => stop());
  });
  return notice('ok', line);
}
