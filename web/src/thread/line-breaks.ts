// `<br>` breaks a line, as models write it in the cells of tables. All other HTML stays text.
type Node = { type: string; value?: string; children?: Node[] };

const breaks = /^(\s*<br\s*\/?>\s*)+$/i;

export function breakLines() {
  const walk = (node: Node): void => {
    for (const child of node.children ?? []) {
      if (child.type === 'html' && breaks.test(child.value ?? '')) {
        child.type = 'break';
        delete child.value;
      } else walk(child);
    }
  };
  return walk;
}
