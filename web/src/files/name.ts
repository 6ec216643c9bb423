// The name of a file on its way to the server.

// Not seen, but it changes what is: controls, marks of direction, zero widths. The server takes it out, too.
const hidden = /[\p{Cc}\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

/** The name as it will be shown once it is sent: `U+202E` could turn `gpj.exe` into `exe.jpg`. */
export const shownName = (name: string) => name.replace(hidden, '') || 'file';
