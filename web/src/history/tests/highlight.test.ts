import { expect, test } from 'vitest';
import { plain } from '../highlight';

const hit = (text: string, word: string) => {
  const letters = [...text];
  const start = letters.findIndex((_, at) => letters.slice(at, at + [...word].length).join('') === word);
  return { field: 'message', text, ranges: [[start, start + [...word].length]] };
};

test.each([
  ['## A title\n\nwith **bold** words', 'bold', 'A title with bold words'],
  ['notes.md\n```js\nlet x;\n```', 'notes', 'notes.md let x;'],
  ['- one\n- two 🙂 `three`', 'three', 'one two 🙂 three'],
  ['| a | b |\n|---|---|\n| x | y |', 'y', 'a b x y'],
  ['see [the page](https://example.com/x) and ![a picture](y.png)', 'page', 'see the page and a picture'],
  ['a - b, snake_case, 3 > 2', 'snake_case', 'a - b, snake_case, 3 > 2'],
  // What was searched for stays.
  ['what **is** `code`', '`code`', 'what is `code`'],
])('%j is shown without its marks', (text, word, wanted) => {
  const found = plain(hit(text, word));
  expect(found.text).toBe(wanted);
  const [[start, end]] = found.ranges as [[number, number]];
  expect([...found.text].slice(start, end).join('')).toBe(word);
});
