// A registry may serve the native parts of this platform alone; npm then leaves the others out of the lock file, and
// `npm ci` refuses it. This names them again, with what their names say they are for. Run it after every change of
// the lock file: `node scripts/complete-lock.js`.
import { readFileSync, writeFileSync } from 'node:fs';

const path = new URL('../package-lock.json', import.meta.url);
const lock = JSON.parse(readFileSync(path, 'utf8'));
const systems = ['android', 'darwin', 'freebsd', 'linux', 'openharmony', 'win32'];

function platform(name) {
  const words = name.split('/').at(-1).split('-');
  if (words.includes('wasm32')) return { cpu: ['wasm32'] };
  const at = words.findIndex((word) => systems.includes(word));
  const libc = { gnu: 'glibc', musl: 'musl', gnueabihf: 'glibc', musleabihf: 'musl' }[words[at + 2]];
  return { cpu: [words[at + 1]], ...(words[at] === 'linux' && libc ? { libc: [libc] } : {}), os: [words[at]] };
}

let added = 0;
for (const { dev, optionalDependencies = {} } of Object.values(lock.packages)) {
  for (const [name, version] of Object.entries(optionalDependencies)) {
    const key = `node_modules/${name}`;
    if (lock.packages[key] || !/^\d/.test(version)) continue;
    lock.packages[key] = { version, ...(dev ? { dev } : {}), optional: true, ...platform(name) };
    added++;
  }
}
const sorted = Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1));
lock.packages = Object.fromEntries(sorted);
writeFileSync(path, `${JSON.stringify(lock, null, 2)}\n`);
console.log(`${added} packages of other platforms added to the lock file`);
