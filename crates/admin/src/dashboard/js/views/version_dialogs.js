// Dialogs that compare a version and roll back to it.

import { Refused, call, query } from '../api.js';
import { field, select } from '../controls.js';
import { diffView } from '../diff_view.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { say } from '../messages.js';
import { data, refresh } from '../poll.js';
import { forceGate } from './force.js';

/** Compares a version with another one, by default the one that it is based on. */
export async function versionDiff(number, against) {
  const others = (data.versions.get()?.versions ?? []).map((one) => one.number).filter((other) => other !== number);
  const known = against === undefined || others.includes(against) ? others : [against, ...others];
  const base = against ?? data.versions.get()?.versions.find((one) => one.number === number)?.based_on ?? '';
  const options = [['', 'nothing'], ...known.map((other) => [String(other), `version ${other}`])];
  const choice = select(base === '' ? options : options.slice(1), String(base), { on: { change: draw } });
  const changes = h('div', { 'aria-live': 'polite' }, 'Comparing…');
  openDialog({ title: `Changes of version ${number}`, wide: true,
    content: [h('div', { class: 'two' }, field('Against', choice)), changes] });
  await draw();

  async function draw() {
    try {
      const diff = await call('GET', query(`versions/${number}/diff`, { against: choice.value || undefined }));
      changes.replaceChildren(diffView(diff));
    } catch (error) {
      changes.replaceChildren(h('p', { class: 'bad' }, error.message));
    }
  }
}

/** Shows the changes of a rollback, and performs it when confirmed. */
export async function rollbackDialog(version, current) {
  const changes = h('div', {}, h('p', { class: 'muted' }, 'Comparing…'));
  const comment = h('input', { type: 'text', maxlength: 500, placeholder: 'Reason of the change' });
  const gate = forceGate();
  const dialog = openDialog({
    title: `Roll back to version ${version.number}?`,
    wide: true,
    danger: true,
    content: [h('p', { class: 'muted' }, `A new version gets the files of version ${version.number}. Nothing is deleted.`),
      gate.node, changes, field('Comment', comment)],
    label: 'Roll back',
    submit: async () => {
      const body = { based_on: current ?? undefined, comment: comment.value.trim() };
      try {
        const made = await gate.send((isForced) =>
          call('POST', `versions/${version.number}/rollback`, { ...body, force: isForced || undefined }));
        say(`Version ${made.version.number} is current, with the rules of version ${version.number}.`);
        refresh('status', 'rules', 'versions', 'audit');
        return true;
      } catch (error) {
        if (error instanceof Refused && error.code === 'stale') refresh('versions');
        throw error;
      }
    },
  });
  comment.focus();
  try {
    const diff = await call('GET', query(`versions/${version.number}/diff`, { against: 'current' }));
    changes.replaceChildren(diffView(diff));
  } catch (error) {
    changes.replaceChildren();
    dialog.wrong(error.message);
  }
}
