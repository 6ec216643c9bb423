// The tests in a browser, two files at once. A file that failed is run once more, alone: that a machine was busy is no
// fault of the page, and what fails twice is one.
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";

const AT_ONCE = 2;

function run(file) {
  const path = new URL(file, import.meta.url).pathname;
  return new Promise((done) => {
    const test = spawn(process.execPath, ["--test", "--test-reporter=spec", path]);
    let told = "";
    for (const out of [test.stdout, test.stderr]) {
      out.on("data", (piece) => {
        told += piece;
      });
    }
    test.on("close", (code) => {
      process.stdout.write(`\n==> ${file}\n${told}`);
      done(code === 0);
    });
  });
}

const folder = new URL(".", import.meta.url);
const files = readdirSync(folder).filter((file) => file.endsWith(".test.js"));
const failed = [];
const waiting = [...files];
await Promise.all(
  Array.from({ length: AT_ONCE }, async () => {
    for (let file = waiting.shift(); file; file = waiting.shift()) {
      if (!(await run(file))) failed.push(file);
    }
  }),
);
for (const file of failed) {
  console.log(`\n==> once more, alone: ${file}`);
  if (!(await run(file))) process.exit(1);
}
if (failed.length > 0) console.log(`\n==> passed at the second try only: ${failed.join(" ")}`);
