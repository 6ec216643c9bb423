// Puts a .br and a .gz beside every built file that gets smaller by it, and prints what a first visit loads.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const dist = new URL('../dist/', import.meta.url).pathname;
const files = readdirSync(dist, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && !/\.(br|gz)$/.test(entry.name))
  .map((entry) => join(entry.parentPath, entry.name));

const sizes = new Map();
for (const file of files) {
  const bytes = readFileSync(file);
  sizes.set(file.slice(dist.length), bytes.length);
  if (/\.(woff2|png|bcmap|pfb|ttf)$/.test(file)) continue;
  const packed = {
    br: brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }),
    gz: gzipSync(bytes, { level: 9 }),
  };
  for (const [ending, smaller] of Object.entries(packed)) {
    if (smaller.length < bytes.length) writeFileSync(`${file}.${ending}`, smaller);
  }
  sizes.set(file.slice(dist.length), Math.min(packed.br.length, bytes.length));
}

const index = readFileSync(join(dist, 'index.html'), 'utf8');
const first = ['index.html', ...[...index.matchAll(/(?:src|href)="\/([^"]+)"/g)].map((match) => match[1])];
const total = first.reduce((sum, name) => sum + (sizes.get(name) ?? 0), 0);
console.log(`first load without fonts and lazy parts: ${(total / 1000).toFixed(0)} kB`);
for (const [name, size] of [...sizes].sort((a, b) => b[1] - a[1]).slice(0, 12)) {
  console.log(`${(size / 1000).toFixed(1).padStart(8)} kB  ${name}${first.includes(name) ? '' : '  (when needed)'}`);
}
