import { createElement } from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { describe, expect, it } from 'vitest';
import { Reader } from '../markdown-reader';

const read = (text: string, typing = false) => renderToStaticMarkup(createElement(Reader, { text, typing }));
/** What stands as code. */
const formulas = (text: string) => [...read(text).matchAll(/<code[^>]*>(.*?)<\/code>/gs)].map(([, inside]) => inside?.replace(/<[^>]+>/g, ''));

describe('formulas', () => {
  it('stand as they were written', () => {
    for (const formula of ['$a_1 * b_2 * c$', '$x$', '$5x_1$', '$$\\sum_{i=1}^n i^2$$', '\\(\\alpha_1 \\\\ \\beta_2\\)', '\\[ x_1*y*z \\]', '\\[a^2\\]', '$\\$3$']) {
      expect(formulas(`Let ${formula}, *then* ${formula}.`), formula).toEqual([formula, formula]);
      expect(formulas(`| a | b |\n|---|---|\n| 1 | ${formula} |`), formula).toEqual([formula]);
    }
    expect(formulas('Two lines $$a_1 +\n*b*$$ and **$c_1$**')).toEqual(['$$a_1 + *b*$$', '$c_1$']);
  });

  it('stand as a block where they do', () => {
    const block = '$$\na_1 &= *b* \\\\\n- c\n# d\n$$';
    expect(formulas(`Then\n${block}\nfollows *this*`)).toEqual([block.replace('&', '&amp;')]);
    expect(read(`Then\n${block}\nfollows *this*`)).toContain('<em>this</em>');
    expect(formulas('- one\n  \\[\n  a_1\n  \\]\n- two *b*')).toEqual(['\\[\na_1\n\\]']);
    expect(formulas('> $$\n> a_1\n> $$\n\n*b*')).toEqual(['$$\na_1\n$$']);
    // Not closed, it ends with what it is in.
    expect(formulas('- $$\n  a_1\n\n*b*')).toEqual(['$$\na_1']);
  });

  it('are not prices, names or escapes', () => {
    for (const text of ['$5 and $10', '$5, 10$ for both', 'US$5 or A$ 7', '$HOME/$USER', '$5-$10', '$$$ dear $$$', 'a $ b $ c', '\\[1\\] and \\[sic\\]', '\\$5_a_$ ', '$a `b$`', '\\(', '\\(a', '$', '$a\n\nb$']) {
      expect(formulas(text).filter((one) => one !== 'b$'), text).toEqual([]);
    }
    expect(read('\\[sic\\] costs $5 and *$10*')).toContain('[sic] costs $5 and <em>$10</em>');
  });

  it('are whole while the text grows', () => {
    expect(read('Let $a_1$ be *this', true)).toContain('<code>$a_1$</code> be <em>this</em>');
    expect(read('Let $a_1$ and $b_2$ be', true)).toContain('<code>$a_1$</code> and <code>$b_2$</code> be</p>');
    expect(read('Let \\(a_1\\) be', true)).toContain('<code>\\(a_1\\)</code> be</p>');
    expect(read('So\n\n$$\na_1 * b', true)).toContain('a_1 * b');
  });
});

describe('raw HTML', () => {
  it('stays text, but <br> breaks a line', () => {
    expect(read('| a |\n|---|\n| one<br>two<br/>three<BR />*four* |')).toMatch(/one<br\/>\s*two<br\/>\s*three<br\/>\s*<em>four<\/em>/);
    expect(read('one<br>two')).toMatch(/one<br\/>\s*two/);
    expect(read('one\n\n<br>\n\ntwo')).not.toContain('&lt;br');
    expect(read('<b>one</b> <br onclick="x()"> `<br>`')).toContain('&lt;b&gt;one&lt;/b&gt; &lt;br onclick=&quot;x()&quot;&gt; <code>&lt;br&gt;</code>');
  });
});
