// What the reader may do with a thread, as the server decides it.
import type { Conversation } from '../client/types';
import type { Session } from '../session';

/** Delete it, and say who sees it. Its title is everybody's who sees it. */
export const owns = ({ me, workspace }: Session, { attributes }: Conversation): boolean => workspace?.role === 'admin' || attributes.user_id === me.user;
