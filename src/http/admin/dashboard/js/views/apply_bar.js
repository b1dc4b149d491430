// Buttons to apply or discard a draft, and the reason if applying is disabled.

import { button } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { draft } from '../draft.js';
import { say } from '../messages.js';
import { WHY_NOT, mayWrite } from '../session.js';
import { isEditable } from './source_notice.js';

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
    if (why) forward.setAttribute('aria-disabled', 'true');
    else forward.removeAttribute('aria-disabled');
    back.hidden = !draft.isChanged();
  }

  update();
  return { node: h('div', { class: 'row' }, back, forward), update };
}
