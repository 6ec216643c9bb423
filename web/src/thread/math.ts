// Formulas: `$…$`, `$$…$$`, `\(…\)` and `\[…\]` stand as they were written, as code does; read as Markdown they would
// lose their `_`, `*` and `\`. What is a formula and what a price is told by the rule of other readers of it: no blank
// inside its dollars, no letter or digit right outside of them.

/** A character, or null at the end; ends of lines and tabs are below zero. */
type Code = number | null;
type State = (code: Code) => State | undefined;
type Effects = {
  enter: (type: string) => void;
  exit: (type: string) => void;
  consume: (code: Code) => undefined;
  attempt: (construct: unknown, ok: State, nok: State) => State;
};
type Tokenizer = { previous: Code; now: () => { line: number }; parser: { lazy: Record<number, boolean> } };
type Tokenize = (this: Tokenizer, effects: Effects, ok: State, nok: State) => State;

const [DOLLAR, BACKSLASH, BACKTICK, SPACE, TAB] = [36, 92, 96, 32, -2];
const isEnd = (code: Code) => code !== null && code < TAB;
const isBlank = (code: Code) => code === null || code < 0 || code === SPACE;
const letter = (code: Code) => (code === null ? '' : code < 0 ? ' ' : String.fromCharCode(code));
const isWord = (code: Code) => /[\p{L}\p{N}]/u.test(letter(code));

/** `\(` and `\[`, each with what ends it. */
const closing: Record<string, string> = { '(': ')', '[': ']' };
const formal = /[\\^_={}+<>]/;

/** Whether this is a formula, from between its marks. */
function means(mark: string, text: string): boolean {
  if (text.trim() === '') return false;
  // `\[1\]` is how others write [1].
  if (mark === '\\[') return formal.test(text) || text.startsWith(' ');
  if (mark !== '$') return true;
  // `$5 for it, 10$ for both` are prices.
  return !/^\s|\s$/.test(text) && (!/^\d.*\s/s.test(text) || formal.test(text));
}

const text: Tokenize = function (effects, ok, nok) {
  const { previous } = this;
  let [mark, inside, slashed] = ['', '', false];

  const start: State = (code) => {
    if (code === DOLLAR && (previous === DOLLAR || isWord(previous))) return nok(code);
    effects.enter('mathText');
    effects.enter('mathTextMark');
    mark = letter(code);
    effects.consume(code);
    return opening;
  };
  const opening: State = (code) => {
    const more = mark === '\\' ? letter(code) in closing : code === DOLLAR && mark === '$';
    if (!more) return mark === '\\' ? nok(code) : begin(code);
    mark += letter(code);
    effects.consume(code);
    return begin;
  };
  const begin: State = (code) => {
    if (mark === '$$' && code === DOLLAR) return nok(code);
    effects.exit('mathTextMark');
    return content(code);
  };
  const content: State = (code) => {
    if (code === null || code === BACKTICK) return nok(code);
    if (isEnd(code)) {
      effects.enter('lineEnding');
      effects.consume(code);
      effects.exit('lineEnding');
      inside += ' ';
      slashed = false;
      return content;
    }
    effects.enter('mathTextData');
    return data(code);
  };
  const data: State = (code) => {
    if (code === null || code === BACKTICK || isEnd(code)) {
      effects.exit('mathTextData');
      return content(code);
    }
    const char = letter(code);
    effects.consume(code);
    if (mark[0] === '\\') {
      // Another one begins: this one has no end. So no text is read more than twice.
      if (slashed && char === mark[1]) return nok;
      if (slashed && char === closing[mark[1] as string]) return inside.length > 1 && means(mark, inside.slice(0, -1)) ? end : nok;
    } else if (code === DOLLAR && !slashed) {
      if (mark === '$') return means(mark, inside) ? end : nok;
      if (inside.endsWith('$')) return means(mark, inside.slice(0, -1)) ? end : nok;
    }
    inside += char;
    slashed = code === BACKSLASH && !slashed;
    return data;
  };
  const end: State = (code) => {
    if (mark[0] === '$' && (code === DOLLAR || (mark === '$' && isWord(code)))) return nok(code);
    effects.exit('mathTextData');
    effects.exit('mathText');
    return ok(code);
  };
  return start;
};

/** The next line, if there is one and it is still of the same list item or quotation. */
const nextLine = {
  partial: true,
  tokenize: function (effects, ok, nok) {
    return (code) => {
      if (code === null) return nok(code);
      effects.enter('lineEnding');
      effects.consume(code);
      effects.exit('lineEnding');
      return (next) => (this.parser.lazy[this.now().line] ? nok(next) : ok(next));
    };
  } satisfies Tokenize,
};

/** From a line with `$$` or `\[` alone through the line that has its end; until that comes, all there is. */
const flow: Tokenize = function (effects, ok, nok) {
  let [mark, line] = ['', ''];

  const start: State = (code) => {
    effects.enter('mathFlow');
    effects.enter('mathFlowData');
    return opening(code);
  };
  const opening: State = (code) => {
    if (mark.length === 2) return alone(code);
    mark += letter(code);
    if (code === null || !['$', '\\', '$$', '\\['].includes(mark)) return nok(code);
    effects.consume(code);
    return opening;
  };
  const alone: State = (code) => {
    if (code !== null && !isBlank(code)) return nok(code);
    if (code === null || isEnd(code)) {
      effects.exit('mathFlowData');
      return next(code);
    }
    effects.consume(code);
    return alone;
  };
  const next: State = (code) => effects.attempt(nextLine, begin, end)(code);
  const begin: State = (code) => {
    line = '';
    if (code === null || isEnd(code)) return next(code);
    effects.enter('mathFlowData');
    return data(code);
  };
  const data: State = (code) => {
    if (code !== null && !isEnd(code)) {
      line += letter(code);
      effects.consume(code);
      return data;
    }
    effects.exit('mathFlowData');
    return line.includes(mark === '$$' ? '$$' : '\\]') ? end(code) : next(code);
  };
  const end: State = (code) => {
    effects.exit('mathFlow');
    return ok(code);
  };
  return start;
};

type Compiler = { enter: (node: object, token: unknown) => void; exit: (token: unknown) => void; sliceSerialize: (token: unknown) => string };
type Reader = { data: () => { micromarkExtensions?: unknown[]; fromMarkdownExtensions?: unknown[] } };

export function readMath(this: Reader): void {
  const data = this.data();
  const inText = { name: 'mathText', tokenize: text };
  const inFlow = { name: 'mathFlow', tokenize: flow, concrete: true };
  (data.micromarkExtensions ??= []).push({ text: { [DOLLAR]: inText, [BACKSLASH]: inText }, flow: { [DOLLAR]: inFlow, [BACKSLASH]: inFlow } });
  (data.fromMarkdownExtensions ??= []).push({
    enter: {
      mathText(this: Compiler, token: unknown) {
        this.enter({ type: 'inlineCode', value: this.sliceSerialize(token) }, token);
      },
      mathFlow(this: Compiler, token: unknown) {
        this.enter({ type: 'code', lang: 'math', value: this.sliceSerialize(token).trimEnd() }, token);
      },
    },
    exit: {
      mathText(this: Compiler, token: unknown) {
        this.exit(token);
      },
      mathFlow(this: Compiler, token: unknown) {
        this.exit(token);
      },
    },
  });
}
