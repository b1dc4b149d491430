// The name that changes are made in where nobody needs a token: the instance writes it down, and can't check it.

const NAME = 'tollgate.author';

export const author = {
  get: () => localStorage.getItem(NAME) ?? '',
  set: (name) => (name ? localStorage.setItem(NAME, name) : localStorage.removeItem(NAME)),
  /** As a header holds it: the bytes of UTF-8. */
  header: () => String.fromCharCode(...new TextEncoder().encode(author.get())),
};
