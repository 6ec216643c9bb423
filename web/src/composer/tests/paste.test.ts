import { expect, test } from 'vitest';
import { pastedFiles } from '../paste';

const picture = new File(['x'], 'image.png', { type: 'image/png' });
const paste = (types: string[], ...files: File[]) => pastedFiles({ types, files: files as unknown as FileList });

test('a picture of copied cells is not pasted instead of them', () => {
  expect(paste(['text/plain', 'text/html', 'Files'], picture)).toEqual([]);
});

test('a picture, a file with its name beside it, and several files are attached', () => {
  expect(paste(['Files'], picture)).toEqual([picture]);
  expect(paste(['text/html', 'Files'], picture)).toEqual([picture]);
  expect(paste(['text/plain', 'Files'], picture)).toEqual([picture]);
  expect(paste(['text/plain', 'text/html', 'Files'], picture, picture)).toEqual([picture, picture]);
  const sheet = new File(['x'], 'a.csv', { type: 'text/csv' });
  expect(paste(['text/plain', 'text/html', 'Files'], sheet)).toEqual([sheet]);
});
