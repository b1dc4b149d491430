// Confirmation of changes that violate guardrails.

import { Refused } from '../api.js';
import { field, notice } from '../controls.js';
import { h } from '../dom.js';

/**
 * Shows the guardrails that a change violates and requires confirmation. `show(reasons)` shows them, `reset()` removes them,
 * because the change is another one; `send(attempt)` calls `attempt(isForced)`, with force only if all guardrails that the
 * API reports were confirmed.
 */
export function forceGate() {
  const node = h('div', { class: 'stack' });
  let shown = null;

  function show(reasons) {
    shown = forceFields(reasons);
    node.replaceChildren(shown.node);
  }

  /** Drops the reasons that were shown, and what was confirmed. */
  function reset() {
    shown = null;
    node.replaceChildren();
  }

  async function send(attempt) {
    if (shown && !shown.isGiven()) {
      shown.focus();
      throw new Error('Confirm above to apply anyway.');
    }
    try {
      return await attempt(false);
    } catch (error) {
      if (!(error instanceof Refused) || error.code !== 'needs_force') throw error;
      if (shown && covers(shown.reasons, error.details.reasons)) return attempt(true);
      show(error.details.reasons);
      throw new Error('Nothing has been changed; confirm above to apply anyway.');
    }
  }

  return { node, show, reset, send };
}

/** Whether every reason was confirmed. */
export const covers = (confirmed, reasons) =>
  reasons.every((reason) => confirmed.some((one) => one.code === reason.code && one.domain === reason.domain));

/** Reasons, with a field for the name of the only domain affected, or a checkbox for each of several. */
function forceFields(reasons) {
  const violated = notice('bad', h('div', { class: 'stack' },
    h('p', { class: 'strong' }, 'This would hurt traffic:'),
    h('ul', { class: 'changes' }, reasons.map((reason) => h('li', {}, h('code', { class: 'strong' }, reason.domain), h('span', {}, reason.message))))));
  const domains = [...new Set(reasons.map((reason) => reason.domain))];
  const confirmation = domains.length === 1 ? typed(domains[0]) : ticks(domains);
  return { reasons, node: h('div', { class: 'stack' }, violated, confirmation.node), isGiven: confirmation.isGiven, focus: confirmation.focus };
}

function typed(domain) {
  const input = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false' });
  return { node: field(`To apply anyway, type the name of the domain: ${domain}`, input),
    isGiven: () => input.value.trim() === domain, focus: () => input.focus() };
}

function ticks(domains) {
  const boxes = domains.map((domain) => h('input', { type: 'checkbox', data: { domain } }));
  const node = h('fieldset', {}, h('legend', { class: 'label' }, 'To apply anyway, tick each domain'),
    boxes.map((box) => h('label', { class: 'choice' }, box, h('span', {}, `${box.dataset.domain} may lose this traffic`))));
  return { node, isGiven: () => boxes.every((box) => box.checked), focus: () => boxes[0].focus() };
}
