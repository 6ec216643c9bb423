// Which workspace, for those who are in several; and the way out.
import { ChevronsUpDown, Download, LogOut, Plus } from 'lucide-react';
import { useRef, useState } from 'react';
import { archiveLink } from '../client/library';
import { go, paths } from '../router';
import { logOutHere, type Session } from '../session';
import { Dialog } from '../ui/dialog';
import { Menu, MenuChoice, MenuItem, MenuLine } from '../ui/menu';
import { complain } from '../ui/toast';
import { NewWorkspace } from './new-workspace';

function download(url: string): void {
  const link = document.createElement('a');
  Object.assign(link, { href: url, download: '' });
  link.click();
}

export function WorkspaceMenu({ session }: { session: Session }) {
  const { me, workspace, workspaces, choose } = session;
  const name = workspace?.name ?? 'No workspace';
  const [naming, setNaming] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  // The menu that asked for the dialog is gone by then.
  const close = () => {
    setNaming(false);
    opener.current?.focus();
  };
  return (
    <>
      <Menu
        side="top"
        trigger={
          <button ref={opener} type="button" className="flex h-10 min-w-0 grow items-center gap-2.5 rounded-md px-2 text-left text-small hover:bg-hover">
            <span aria-hidden className="grid size-6 shrink-0 place-items-center rounded-sm bg-accent-wash text-tiny font-semibold text-accent uppercase">
              {[...name][0]}
            </span>
            <span className="min-w-0 grow">
              <bdi className="block truncate leading-4 font-medium">{name}</bdi>
              <bdi className="block truncate text-tiny text-faint">{me.user}</bdi>
            </span>
            <ChevronsUpDown size={14} aria-hidden className="shrink-0 text-faint" />
          </button>
        }
      >
        <MenuChoice
          value={workspace?.id ?? ''}
          options={workspaces.map((one) => ({ value: one.id, label: one.name, hint: one.role }))}
          onChange={(id) => {
            choose(id);
            go(paths.fresh);
          }}
        />
        {me.user && (
          <MenuItem icon={<Plus size={15} aria-hidden />} onSelect={() => setNaming(true)}>
            New workspace…
          </MenuItem>
        )}
        <MenuLine />
        {workspace?.role === 'admin' && (
          <MenuItem icon={<Download size={15} aria-hidden />} onSelect={() => download(archiveLink('jsonl'))}>
            Export all threads
          </MenuItem>
        )}
        <MenuItem icon={<LogOut size={15} aria-hidden />} onSelect={() => void logOutHere(session).catch(complain)}>
          Log out
        </MenuItem>
      </Menu>
      {naming && (
        <Dialog title="New workspace" onClose={close}>
          <NewWorkspace session={session} onMade={() => setNaming(false)} />
        </Dialog>
      )}
    </>
  );
}
