// The page begins here.
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { App } from './app';
import { Failure, onUnauthenticated } from './client/http';
import './styles/app.css';
import { TipProvider } from './ui/tip';

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      networkMode: 'always',
      retry: (count, error) => error instanceof Failure && error.passing && count < 3,
    },
    mutations: { networkMode: 'always' },
  },
});

onUnauthenticated(() => {
  const known = client.getQueryState(['session']);
  if (known?.status === 'success') void client.resetQueries({ queryKey: ['session'] });
});

createRoot(document.getElementById('root') as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <TipProvider>
        <App />
      </TipProvider>
    </QueryClientProvider>
  </StrictMode>,
);
