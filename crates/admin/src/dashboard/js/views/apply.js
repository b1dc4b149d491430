// The bar and the dialog that apply an edit.

import { Refused, call } from '../api.js';
import { busy, button, field, notice } from '../controls.js';
import { openDialog } from '../dialog.js';
import { diffView } from '../diff_view.js';
import { h } from '../dom.js';
import { draft } from '../draft.js';
import { ago } from '../format.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';
import { WHY_NOT, mayWrite } from '../session.js';
import { forceGate } from './force.js';
import { isEditable, rebase } from './notices.js';
import { versionDiff } from './version_dialogs.js';

export function applyBar({ checks, apply, discard, show }) {
  const forward = button('Review and apply…', press, 'primary');
  const back = button('Discard edits…', confirmDiscard);

  function closed() {
    const result = checks.result.get();
    if (mayWrite() === false) return WHY_NOT;
    if (isEditable() === false) return 'The rules come from another source; change them there.';
    if (!draft.isChanged()) return 'Nothing has been changed yet.';
    if (result?.state === 'checked' && !result.answer.is_valid) return 'Solve the problems first.';
    return null;
  }

  function press() {
    const why = closed();
    if (!why) return apply();
    say(why, 'bad');
    if (mayWrite() && isEditable()) show();
  }

  function confirmDiscard() {
    if (!draft.isChanged()) return say('There are no edits to discard.');
    openDialog({
      title: 'Discard your edits?',
      content: h('p', {}, 'Your changes are lost, and the files are those of the current version.'),
      label: 'Discard',
      danger: true,
      submit: () => {
        discard();
        return true;
      },
    });
  }

  function update() {
    const why = closed();
    forward.title = why ?? '';
    busy(forward, Boolean(why));
    back.hidden = !draft.isChanged();
  }

  update();
  return { node: h('div', { class: 'row' }, back, forward), update };
}

/** Opens the dialog. `reasons` are the guardrails that validation reported; `done(outcome)` is called at the end. */
export async function applyDialog(reasons, done) {
  // The files that are shown are sent, whatever is typed meanwhile.
  const { base, files } = draft;
  const changes = h('div', {}, h('p', { class: 'muted' }, 'Comparing…'));
  const comment = h('input', { type: 'text', maxlength: 500, placeholder: 'Reason of the change',
    value: draft.comment, on: { input: () => (draft.comment = comment.value) } });
  const gate = forceGate();
  const dialog = openDialog({
    title: 'Apply these rules?',
    wide: true,
    content: [gate.node, changes, field('Comment', comment)],
    label: 'Apply',
    submit: async (handle) => {
      const body = { based_on: base, files, comment: comment.value.trim() };
      try {
        const { version } = await gate.send((isForced) => call('POST', 'versions', { ...body, force: isForced || undefined }));
        applied(version, files, handle, done);
        return true;
      } catch (error) {
        return refused(error, { handle, against: gate.node, done });
      }
    },
  });
  if (reasons.length > 0) gate.show(reasons);
  comment.focus();
  await showChanges(changes, dialog, { files, against: base ?? undefined });
}

async function showChanges(changes, dialog, request) {
  try {
    changes.replaceChildren(diffView(await call('POST', 'diff', request)));
  } catch (error) {
    changes.replaceChildren();
    dialog.wrong(error.message);
  }
}

/** The sent files are current; anything typed since is an edit of them. */
function applied(version, files, handle, done) {
  draft.restart(version.number, files, draft.files);
  draft.comment = '';
  refresh('status', 'rules', 'versions', 'audit');
  if (!handle.isOpen()) say(`Version ${version.number} is current.`);
  done({ applied: version });
}

/** Returns whether the dialog closes: most refusals can be resolved in it. */
function refused(error, { handle, against, done }) {
  if (!(error instanceof Refused) || !handle.isOpen()) throw error;
  if (error.code === 'stale') {
    against.replaceChildren(staleNotice(error.details.current, handle, done));
    handle.send.hidden = true;
    against.scrollIntoView({ block: 'nearest' });
    return false;
  }
  if (error.code === 'invalid') {
    done({ problems: error.details.problems });
    return true;
  }
  throw error;
}

/** Another operator was faster: shows the newer version and offers to rebase. Nothing is lost. */
function staleNotice(current, handle, done) {
  const about = current.comment ? `“${current.comment}”` : 'without a comment';
  const box = notice('warn', h('div', { class: 'stack' },
    h('p', { class: 'strong', role: 'alert' }, `${current.author} made version ${current.number} ${ago(current.created_at_ms)}, ${about}.`),
    h('p', {}, `Your edit is of version ${draft.base ?? 'none'}, so nothing was applied. Your edits are kept.`)),
  h('div', { class: 'row' },
    button('See what they changed', () => versionDiff(current.number, draft.base ?? undefined)),
    button('Rebase my edit on it', async () => {
      try {
        const outcome = await rebase();
        handle.close();
        done({ rebased: outcome });
      } catch (error) {
        handle.wrong(error.message);
      }
    }, 'primary')));
  queueMicrotask(() => box.querySelector('button.primary').focus());
  return box;
}
