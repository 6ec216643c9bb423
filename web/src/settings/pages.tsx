// Pages: Markdown documents of the workspace, which assistants find and cite.
import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { ArrowLeft, ExternalLink, Pencil, Plus } from 'lucide-react';
import { useDeferredValue, useState } from 'react';
import { createPage, getPage, listPages, removePage, updatePage, type Document, type DocumentText } from '../client/library';
import { follow, go, paths } from '../router';
import { Markdown } from '../thread/markdown';
import { Field, Spinner } from '../ui/bits';
import { Button } from '../ui/button';
import { complain, toast } from '../ui/toast';
import { day, Empty, FileButton, Item, List, RemoveButton, Section } from './parts';

const blank: DocumentText = { title: '', body: '', url: null };

export function Pages({ id }: { id: string | null }) {
  const [writing, setWriting] = useState(false);
  if (id) return <PageView key={id} id={id} />;
  if (writing) return <PageForm page={blank} title="New page" onCancel={() => setWriting(false)} onSave={(text) => createPage(text).then((page) => go(paths.page(page.id)))} />;
  return <PageList onNew={() => setWriting(true)} />;
}

/** A Markdown file is a page that is called as its first heading, or else as the file. */
async function fromFile(file: File): Promise<DocumentText> {
  const body = await file.text();
  const heading = /^#{1,2}\s+(.+?)\s*#*$/m.exec(body)?.[1];
  return { title: (heading ?? file.name.replace(/\.(md|markdown|txt)$/i, '')).slice(0, 255), body, url: null };
}

function PageList({ onNew }: { onNew: () => void }) {
  const client = useQueryClient();
  const [typed, setTyped] = useState('');
  const query = useDeferredValue(typed.trim());
  const { data, error, hasNextPage, isFetchingNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey: ['pages', query],
    queryFn: ({ pageParam, signal }) => listPages(query, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: keepPreviousData,
  });
  const found = data?.pages.flatMap((page) => page.data) ?? [];
  const take = async (files: File[]) => {
    for (const file of files) await createPage(await fromFile(file));
    toast(files.length === 1 ? 'One page was imported.' : `${files.length} pages were imported.`);
  };
  return (
    <Section
      title="Pages"
      about="Markdown documents that assistants search and cite."
      actions={
        <>
          <FileButton name="Import" accept=".md,.markdown,.txt,text/markdown,text/plain" multiple onFiles={(files) => void take(files).catch(complain).finally(() => client.invalidateQueries({ queryKey: ['pages'] }))} />
          <Button look="solid" onClick={onNew}>
            <Plus size={15} aria-hidden />
            New page
          </Button>
        </>
      }
    >
      <Field label="Search pages" hidden type="search" placeholder="Search pages" className="mb-4" value={typed} onChange={(event) => setTyped(event.target.value)} />
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the pages" />}
      {data && found.length === 0 && <Empty>{query ? 'Nothing was found.' : 'There are no pages yet. Write one, or import Markdown files.'}</Empty>}
      {found.length > 0 && (
        <List label="Pages">
          {found.map((page) => (
            <Item key={page.id}>
              <a href={paths.page(page.id)} onClick={follow} className="min-w-0 grow basis-0 hover:text-accent">
                <bdi className="block truncate font-medium">{page.title}</bdi>
                <bdi className="block truncate text-tiny text-faint">{page.body.slice(0, 200).replace(/[#*_`>|-]+/g, ' ')}</bdi>
              </a>
              <span className="text-tiny text-faint">{day(page.updated_at)}</span>
            </Item>
          ))}
        </List>
      )}
      {hasNextPage && (
        <Button className="mt-3" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          Load more
        </Button>
      )}
    </Section>
  );
}

function PageView({ id }: { id: string }) {
  const client = useQueryClient();
  const [editing, setEditing] = useState(false);
  const { data, error } = useQuery({ queryKey: ['page', id], queryFn: () => getPage(id), retry: false });
  if (error) return <Gone what="page" />;
  if (!data) return <Spinner label="Loading the page" />;
  const save = async (text: DocumentText) => {
    client.setQueryData(['page', id], await updatePage(id, text));
    await client.invalidateQueries({ queryKey: ['pages'] });
    setEditing(false);
    toast('Saved.');
  };
  if (editing) return <PageForm page={data} title="Edit page" onCancel={() => setEditing(false)} onSave={save} />;
  const remove = async () => {
    await removePage(id);
    go(paths.settings('pages'));
    await client.invalidateQueries({ queryKey: ['pages'] });
    toast(`The page “${data.title}” is gone.`);
  };
  return (
    <>
      <BackTo section="pages" name="All pages" />
      <Section
        title={data.title}
        about={`Changed on ${day(data.updated_at)}`}
        actions={
          <>
            <Button onClick={() => setEditing(true)}>
              <Pencil size={15} aria-hidden />
              Edit
            </Button>
            <RemoveButton name={`Remove the page ${data.title}`} question={`Remove the page “${data.title}”?`} about="Answers that cite it keep their words, and lead nowhere." onRemove={() => void remove().catch(complain)} />
          </>
        }
      >
        {data.url && <Origin page={data} />}
        <div className="rounded-lg border border-line bg-raised px-5 py-4">
          {data.body.trim() ? <Markdown text={data.body} /> : <p className="text-small text-faint">This page is empty.</p>}
        </div>
      </Section>
    </>
  );
}

const Origin = ({ page: { url } }: { page: Document }) => (
  <a href={url ?? ''} target="_blank" rel="noopener noreferrer nofollow" className="mb-3 flex items-center gap-1.5 text-small text-accent hover:underline">
    <ExternalLink size={13} aria-hidden className="shrink-0" />
    <bdi className="truncate">{url}</bdi>
  </a>
);

function PageForm({ page, title, onSave, onCancel }: { page: DocumentText; title: string; onSave: (text: DocumentText) => Promise<unknown>; onCancel: () => void }) {
  const [text, setText] = useState<DocumentText>({ title: page.title, body: page.body, url: page.url });
  const [saving, setSaving] = useState(false);
  const set = (change: Partial<DocumentText>) => setText((now) => ({ ...now, ...change }));
  return (
    <Section title={title}>
      <form
        className="grid gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          setSaving(true);
          onSave({ ...text, title: text.title.trim(), url: text.url?.trim() || null })
            .catch(complain)
            .finally(() => setSaving(false));
        }}
      >
        <Field label="Title" value={text.title} maxLength={255} onChange={(event) => set({ title: event.target.value })} />
        <Field label="Address (optional)" type="url" placeholder="https://…" value={text.url ?? ''} maxLength={2048} onChange={(event) => set({ url: event.target.value })} />
        <label className="block">
          <span className="mb-1.5 block text-small font-medium">Text (Markdown)</span>
          <textarea rows={18} dir="auto" value={text.body} onChange={(event) => set({ body: event.target.value })} className="w-full rounded-md border border-line-strong bg-raised p-3 font-mono text-small outline-none focus:border-accent focus:ring-2 focus:ring-accent/25" />
        </label>
        <div className="flex justify-end gap-2">
          <Button look="quiet" onClick={onCancel}>
            Cancel
          </Button>
          <Button look="solid" type="submit" disabled={saving || !text.title.trim()}>
            Save
          </Button>
        </div>
      </form>
    </Section>
  );
}

export const BackTo = ({ section, name }: { section: string; name: string }) => (
  <a href={paths.settings(section)} onClick={follow} className="mb-4 inline-flex items-center gap-1.5 text-small text-soft hover:text-ink">
    <ArrowLeft size={14} aria-hidden />
    {name}
  </a>
);

export const Gone = ({ what }: { what: 'page' | 'table' }) => (
  <>
    <BackTo section={`${what}s`} name={`All ${what}s`} />
    <Empty>There is no such {what}. It may have been removed.</Empty>
  </>
);
