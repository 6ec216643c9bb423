// One table: its rows, changed in place; files of rows in and out.
import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { Download, Plus, Trash2 } from 'lucide-react';
import { useEffect, useState } from 'react';
import { Failure, type Fault } from '../client/http';
import type { Json } from '../client/json';
import { addRow, exportLink, getTable, importRows, listRows, removeRow, removeTable, updateRow, type Table, type TableRow } from '../client/library';
import { go, paths } from '../router';
import { Spinner } from '../ui/bits';
import { Button, IconButton } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { complain, toast } from '../ui/toast';
import { Cell } from './cell';
import { kindOf } from './guess';
import { BackTo, Gone } from './pages';
import { FileButton, RemoveButton, Section } from './parts';

const link = 'inline-flex h-9 items-center gap-2 rounded-md border border-line-strong bg-raised px-3.5 text-small font-medium hover:bg-hover';

export function TableView({ id, target }: { id: string; target: string | null }) {
  const client = useQueryClient();
  const [faults, setFaults] = useState<Fault[] | null>(null);
  const { data: table, error } = useQuery({ queryKey: ['table', id], queryFn: () => getTable(id), retry: false });
  const settle = () =>
    Promise.all([['rows', id], ['table', id], ['tables']].map((queryKey) => client.invalidateQueries({ queryKey })));
  if (error) return <Gone what="table" />;
  if (!table) return <Spinner label="Loading the table" />;
  const take = async (file: File) => {
    try {
      await importRows(id, file, kindOf(file));
      toast(`${file.name} was imported.`);
    } catch (failure) {
      if (failure instanceof Failure && failure.more.errors) setFaults(failure.more.errors);
      else throw failure;
    }
  };
  const remove = async () => {
    await removeTable(id);
    go(paths.settings('tables'));
    await client.invalidateQueries({ queryKey: ['tables'] });
    toast(`The table “${table.name}” is gone.`);
  };
  return (
    <>
      <BackTo section="tables" name="All tables" />
      <Section
        title={table.name}
        about={`${table.row_count.toLocaleString()} ${table.row_count === 1 ? 'row' : 'rows'}. Cells are changed in place.`}
        actions={
          <>
            <FileButton name="Import" accept=".csv,.json,text/csv,application/json" onFiles={([file]) => file && void take(file).catch(complain).finally(settle)} />
            {(['csv', 'json'] as const).map((format) => (
              <a key={format} href={exportLink(id, format)} download={`${table.name}.${format}`} className={link}>
                <Download size={15} aria-hidden />
                {format.toUpperCase()}
              </a>
            ))}
            <RemoveButton name={`Remove the table ${table.name}`} question={`Remove the table “${table.name}”?`} about="Its rows go with it. This cannot be undone." onRemove={() => void remove().catch(complain)} />
          </>
        }
      >
        <Rows table={table} target={target} onChanged={settle} />
      </Section>
      {faults && (
        <Dialog title="Nothing was imported" onClose={() => setFaults(null)}>
          <p className="text-small text-soft">These rows cannot be taken as they are:</p>
          <ul aria-label="What is wrong" className="mt-3 max-h-80 list-disc overflow-auto pl-5 text-small">
            {faults.map((fault, at) => (
              <li key={at} className="[overflow-wrap:anywhere]">
                {fault.row !== undefined && <strong className="font-semibold">Row {fault.row}: </strong>}
                {fault.column !== undefined && <bdi>{fault.column}: </bdi>}
                {fault.message}
              </li>
            ))}
          </ul>
        </Dialog>
      )}
    </>
  );
}

const cells = (row: TableRow): Record<string, Json> => Object.fromEntries(Object.entries(row).filter(([name]) => name !== '_id'));

function Rows({ table, target, onChanged }: { table: Table; target: string | null; onChanged: () => Promise<unknown> }) {
  const { data, error, hasNextPage, isFetchingNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey: ['rows', table.id],
    queryFn: ({ pageParam, signal }) => listRows(table.id, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const rows = data?.pages.flatMap((page) => page.data) ?? [];
  const there = rows.some((row) => row._id === target);
  useEffect(() => {
    if (target && !there && hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [target, there, hasNextPage, isFetchingNextPage, fetchNextPage]);
  const change = (work: Promise<unknown>) => void work.catch(complain).finally(onChanged);
  if (error) return <p className="text-small text-danger">{error.message}</p>;
  if (!data) return <Spinner label="Loading the rows" />;
  return (
    <>
      <div role="group" aria-label={`Rows of ${table.name}`} className="max-h-[70vh] overflow-auto rounded-lg border border-line bg-raised">
        <table className="w-full border-collapse text-small">
          <thead className="sticky top-0 z-10 bg-sunken">
            <tr>
              {table.columns.map((column) => (
                <th key={column.name} scope="col" className={`border-r border-b border-line px-3 py-2 font-semibold whitespace-nowrap ${column.type === 'number' ? 'text-right' : 'text-left'}`}>
                  {column.name} <span className="text-tiny font-normal text-faint">{column.type}</span>
                </th>
              ))}
              <th scope="col" className="w-10 border-b border-line">
                <span className="sr-only">Remove</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, at) => (
              <tr
                key={row._id}
                data-row={row._id}
                aria-current={row._id === target ? 'true' : undefined}
                className={row._id === target ? 'bg-mark' : ''}
                ref={row._id === target ? (node) => node?.scrollIntoView({ block: 'center' }) : undefined}
              >
                {table.columns.map((column) => (
                  <td key={column.name} className="border-r border-b border-line p-0">
                    <Cell
                      label={`${column.name}, row ${at + 1}`}
                      column={column}
                      value={row[column.name]}
                      onSave={(value) => change(updateRow(table.id, row._id, { ...cells(row), [column.name]: value }))}
                    />
                  </td>
                ))}
                <td className="border-b border-line">
                  <IconButton name={`Remove row ${at + 1}`} small onClick={() => change(removeRow(table.id, row._id))}>
                    <Trash2 size={15} aria-hidden />
                  </IconButton>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {rows.length === 0 && <p className="px-4 py-6 text-center text-small text-soft">There are no rows yet.</p>}
      </div>
      <div className="mt-3 flex gap-2">
        <Button onClick={() => change(addRow(table.id, {}))}>
          <Plus size={15} aria-hidden />
          Add a row
        </Button>
        {hasNextPage && (
          <Button disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            Load more
          </Button>
        )}
      </div>
    </>
  );
}
