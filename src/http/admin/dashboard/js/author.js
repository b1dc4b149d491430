// The author of changes where no token is required. The instance records the name and cannot verify it.

const NAME = 'tollgate.author';

export const author = {
  get: () => localStorage.getItem(NAME) ?? '',
  set: (name) => (name ? localStorage.setItem(NAME, name) : localStorage.removeItem(NAME)),
  /** As a header value: the bytes of UTF-8. */
  header: () => String.fromCharCode(...new TextEncoder().encode(author.get())),
};
