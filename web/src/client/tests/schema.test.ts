import { readFileSync } from 'node:fs';
import openapiTS, { astToString } from 'openapi-typescript';
import { expect, it } from 'vitest';

it('the types are those of openapi.json; `npm run types` brings them up to date', async () => {
  const made = astToString(await openapiTS(new URL('../../../../openapi.json', import.meta.url)));
  const kept = readFileSync(new URL('../schema.d.ts', import.meta.url), 'utf8');
  expect(kept.endsWith(made)).toBe(true);
});
