import { expect, test } from 'vitest';
import { matching, type Offer } from '../model-list';

const offer = (label: string, hint?: string): Offer => ({ key: label, group: 'Model', label, chosen: false, choose: () => {}, ...(hint ? { hint } : {}) });
const offers = [offer('openai/vendor-3-large'), offer('openai/vendor-30'), offer('anthropic/Other'), offer('Careful', 'openai/vendor-3-small')];
const found = (query: string) => matching(offers, query).map(({ label }) => label);

test('a model is found by any part of its name, and an agent by its model too', () => {
  expect(found('')).toHaveLength(4);
  expect(found('vendor-3')).toEqual(['openai/vendor-3-large', 'openai/vendor-30', 'Careful']);
  expect(found(' LARGE  vendor ')).toEqual(['openai/vendor-3-large']);
  expect(found('other')).toEqual(['anthropic/Other']);
  expect(found('nothing')).toEqual([]);
});
