// Creates elements. Text from traffic is inserted as text and never parsed as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** Creates an HTML element: `on` has its listeners, `data` its data attributes, all else are attributes. */
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/** Creates an SVG element. */
export function svg(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(node, props, children) {
  node.append(...children.flat(2).filter(isShown).map(visible));
  for (const [name, value] of Object.entries(props ?? {})) {
    if (!isShown(value)) continue;
    if (name === 'on') Object.entries(value).forEach(([event, handle]) => node.addEventListener(event, handle));
    else if (name === 'data') Object.assign(node.dataset, value);
    else if (name === 'value') node.value = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  return node;
}

// Control characters, line separators, and characters that reorder or hide text.
const HIDDEN = /(?![\n\t\r])[\p{Cc}\p{Zl}\p{Zp}\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]/gu;

/** A value with characters that would mislead a reader in the form `\u{202e}`. */
const visible = (value) => typeof value === 'string'
  ? value.replace(HIDDEN, (character) => `\\u{${character.codePointAt(0).toString(16)}}`) : value;

const isShown = (value) => value !== undefined && value !== null && value !== false;

/** Sets a text only if it differs, which keeps selections and avoids repeated announcements. */
export function text(node, value) {
  const shown = visible(value);
  if (node.textContent !== shown) node.textContent = shown;
}

/** Replaces the content of a node if its mark has changed. */
export function redraw(node, mark, draw) {
  if (node.dataset.mark === mark) return;
  node.dataset.mark = mark;
  node.replaceChildren(...[draw()].flat(2).filter(isShown));
}

let made = 0;

/** A unique element id. */
export const unique = (stem) => `${stem}-${++made}`;
