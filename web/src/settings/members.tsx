// Who is in the workspace.
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { UserMinus } from 'lucide-react';
import { useState } from 'react';
import { addMember, listMembers, removeMember } from '../client/api';
import type { Member } from '../client/types';
import type { Session } from '../session';
import { Choice, Field, Spinner } from '../ui/bits';
import { Button, IconButton } from '../ui/button';
import { complain, toast } from '../ui/toast';
import { day, Item, List, Section } from './parts';

export function Members({ session, admin }: { session: Session; admin: boolean }) {
  const id = session.workspace?.id ?? '';
  const client = useQueryClient();
  const key = ['members', id];
  const { data, error } = useQuery({ queryKey: key, queryFn: () => listMembers(id), enabled: id !== '' });
  const settle = () => client.invalidateQueries({ queryKey: key });
  const add = useMutation({ mutationFn: ({ user, role }: { user: string; role: string }) => addMember(id, user, role), onError: complain, onSettled: settle });
  const remove = useMutation({
    mutationFn: ({ user }: Member) => removeMember(id, user),
    onSuccess: (_, { user, role }) => toast(`${user} is no longer a member. The threads stay.`, { action: { label: 'Undo', run: () => add.mutate({ user, role }) } }),
    onError: complain,
    onSettled: settle,
  });
  return (
    <Section title="Members" about="Members see their own threads and those shared with the workspace. Admins see all of them, and decide who is here.">
      {admin && <AddForm onAdd={(user, role) => add.mutateAsync({ user, role })} />}
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the members" />}
      {data && (
        <List label="Members">
          {data.map((member) => (
            <Item key={member.user}>
              <span className="min-w-0 grow">
                <bdi className="block truncate font-medium">{member.user}</bdi>
                <span className="text-tiny text-faint">since {day(member.added_at)}</span>
              </span>
              {admin ? (
                <>
                  <Choice label={`Role of ${member.user}`} hidden className="w-32" value={member.role} onChange={(event) => add.mutate({ user: member.user, role: event.target.value })}>
                    <option value="member">Member</option>
                    <option value="admin">Admin</option>
                  </Choice>
                  <IconButton name={`Remove ${member.user}`} disabled={member.user === session.me.user} onClick={() => remove.mutate(member)}>
                    <UserMinus size={16} aria-hidden />
                  </IconButton>
                </>
              ) : (
                <span className="text-soft">{member.role}</span>
              )}
            </Item>
          ))}
        </List>
      )}
    </Section>
  );
}

function AddForm({ onAdd }: { onAdd: (user: string, role: string) => Promise<unknown> }) {
  const [user, setUser] = useState('');
  const [role, setRole] = useState('member');
  return (
    <form
      className="mb-4 flex flex-wrap items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        onAdd(user.trim(), role).then(() => setUser(''), () => undefined);
      }}
    >
      <Field label="User id" className="min-w-48 grow" value={user} maxLength={255} onChange={(event) => setUser(event.target.value)} />
      <Choice label="Role" className="w-32" value={role} onChange={(event) => setRole(event.target.value)}>
        <option value="member">Member</option>
        <option value="admin">Admin</option>
      </Choice>
      <Button look="solid" type="submit" className="h-10" disabled={!user.trim()}>
        Add
      </Button>
    </form>
  );
}
