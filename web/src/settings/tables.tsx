// Tables: typed columns and rows of the workspace, which assistants search, cite and add to.
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Plus, X } from 'lucide-react';
import { useState } from 'react';
import { createTable, importRows, listTables, TYPES, type Column } from '../client/library';
import { follow, go, paths } from '../router';
import { Choice, Field, Spinner } from '../ui/bits';
import { Button, IconButton } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { complain } from '../ui/toast';
import { columnsOfCsv, columnsOfJson, kindOf } from './guess';
import { Empty, FileButton, Item, List, Section } from './parts';
import { TableView } from './table-view';

/** A new table with the columns and rows of a file. */
async function fromFile(file: File): Promise<string> {
  const text = await file.text();
  const columns = kindOf(file) === 'application/json' ? columnsOfJson(text) : columnsOfCsv(text);
  if (!columns || columns.length === 0) throw new Error(`${file.name} has no rows to make a table of.`);
  const table = await createTable(file.name.replace(/\.(csv|json)$/i, ''), columns);
  await importRows(table.id, file, kindOf(file));
  return table.id;
}

export function Tables({ id, row }: { id: string | null; row: string | null }) {
  const client = useQueryClient();
  const [making, setMaking] = useState(false);
  const { data, error } = useQuery({ queryKey: ['tables'], queryFn: listTables });
  if (id) return <TableView key={id} id={id} target={row} />;
  const show = (table: string) => {
    void client.invalidateQueries({ queryKey: ['tables'] });
    go(paths.table(table));
  };
  return (
    <Section
      title="Tables"
      about="Rows with typed columns that assistants search, cite and add to."
      actions={
        <>
          <FileButton name="New from a file" accept=".csv,.json,text/csv,application/json" onFiles={([file]) => file && void fromFile(file).then(show, complain)} />
          <Button look="solid" onClick={() => setMaking(true)}>
            <Plus size={15} aria-hidden />
            New table
          </Button>
        </>
      }
    >
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the tables" />}
      {data && data.length === 0 && <Empty>There are no tables yet. Make one, or begin with a CSV or JSON file.</Empty>}
      {data && data.length > 0 && (
        <List label="Tables">
          {data.map((table) => (
            <Item key={table.id}>
              <a href={paths.table(table.id)} onClick={follow} className="min-w-0 grow basis-0 hover:text-accent">
                <bdi className="block truncate font-medium">{table.name}</bdi>
                <bdi className="block truncate text-tiny text-faint">{table.columns.map((column) => column.name).join(' · ')}</bdi>
              </a>
              <span className="text-tiny text-faint tabular-nums">
                {table.row_count.toLocaleString()} {table.row_count === 1 ? 'row' : 'rows'}
              </span>
            </Item>
          ))}
        </List>
      )}
      {making && (
        <Dialog title="New table" onClose={() => setMaking(false)} wide>
          <TableForm onSave={(name, columns) => createTable(name, columns).then((table) => show(table.id), complain)} />
        </Dialog>
      )}
    </Section>
  );
}

function TableForm({ onSave }: { onSave: (name: string, columns: Column[]) => void }) {
  const [name, setName] = useState('');
  const [columns, setColumns] = useState<Column[]>([{ name: '', type: 'text' }]);
  const set = (at: number, change: Partial<Column>) => setColumns((now) => now.map((column, other) => (other === at ? { ...column, ...change } : column)));
  return (
    <form
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        onSave(name.trim(), columns.map((column) => ({ ...column, name: column.name.trim() })));
      }}
    >
      <Field label="Name" value={name} maxLength={255} onChange={(event) => setName(event.target.value)} />
      <fieldset>
        <legend className="mb-1.5 text-small font-medium">Columns</legend>
        <ul className="grid gap-2">
          {columns.map((column, at) => (
            <li key={at} className="flex items-center gap-2">
              <Field label={`Name of column ${at + 1}`} hidden className="min-w-0 grow" placeholder="Name" value={column.name} maxLength={128} onChange={(event) => set(at, { name: event.target.value })} />
              <Choice label={`Type of column ${at + 1}`} hidden className="w-32 shrink-0" value={column.type} onChange={(event) => set(at, { type: event.target.value as Column['type'] })}>
                {TYPES.map((type) => (
                  <option key={type}>{type}</option>
                ))}
              </Choice>
              <IconButton name={`Remove column ${at + 1}`} disabled={columns.length === 1} onClick={() => setColumns((now) => now.filter((_, other) => other !== at))}>
                <X size={16} aria-hidden />
              </IconButton>
            </li>
          ))}
        </ul>
        <Button look="quiet" className="mt-2" onClick={() => setColumns((now) => [...now, { name: '', type: 'text' }])}>
          <Plus size={15} aria-hidden />
          Add a column
        </Button>
      </fieldset>
      <div className="flex justify-end">
        <Button look="solid" type="submit" disabled={!name.trim() || columns.some((column) => !column.name.trim())}>
          Create
        </Button>
      </div>
    </form>
  );
}
