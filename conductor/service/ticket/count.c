/* Counts open tickets, and limits each tenant's. */
#include "conductor/service/engine/engine.h"
#include "conductor/service/ticket/ticket.h"

/* A tenant may have this many times the number of free tickets: a single tenant
 * gets 4/5 of all, each of two 4/9. */
#define SHARE_OF_FREE 4u

void tickets_init(struct tickets *t, uint64_t seed)
{
    TAILQ_INIT(&t->open);
    t->seed = seed;
}

/* Returns the count of a tenant. Tenants with the same hash share one count;
 * because of the seed, a tenant cannot choose which. */
static uint32_t *count_of(struct tickets *t, uint64_t tenant)
{
    uint64_t h = (tenant ^ t->seed) * 0x9e3779b97f4a7c15u;

    return &t->n_of[h >> 48 & (TICKET_TENANTS - 1)];
}

bool tickets_enter(struct service *s, uint64_t tenant)
{
    struct tickets *t = &s->tickets;
    uint64_t max = (uint64_t)s->config.max_tickets;
    uint32_t *own = count_of(t, tenant);

    if (t->n >= max || *own >= SHARE_OF_FREE * (max - t->n)) {
        s->metrics.tickets_refused++;
        return false;
    }
    t->n++;
    ++*own;
    return true;
}

void ticket_let_go(struct forward *f)
{
    if (!f->ticket)
        return;
    if (f->engine)
        f->engine->n_tickets--;
    if (f->shares)
        f->shares->n_tickets--;
    f->shares = NULL;
}

void ticket_free(struct service_request *request)
{
    struct service *s = request->service;
    struct forward *f = request->forward;

    s->tickets.n--;
    --*count_of(&s->tickets, request->dispatch.tenant);
    if (f->ticket)
        TAILQ_REMOVE(&s->tickets.open, request, entry);
    ticket_let_go(f);
    forward_free(request);
}
