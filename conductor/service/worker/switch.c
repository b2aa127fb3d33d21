/*
 * See switch.h. A worker about to switch gets no new work from the pool. When
 * its last work has ended, it gets the frame ROLE; work of the new role follows
 * on the same connection.
 */
#include "conductor/service/worker/switch.h"

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/models.h"

_Static_assert(ROLE_PREFILL == (unsigned)PROTO_ROLE_PREFILL &&
                   ROLE_DECODE == (unsigned)PROTO_ROLE_DECODE,
               "roles are alike on the wire");

static void log_begin(const struct pool_instance *in,
                      const struct roles_action *a)
{
    const struct roles_reason *r = &a->reason;
    const char *from = proto_role_name((uint8_t)a->from);
    const char *to = proto_role_name((uint8_t)a->to);

    if (r->command)
        log_info("worker %s finishes its work, then switches from %s to %s: by "
                 "command",
                 in->name, from, to);
    else
        log_info("worker %s finishes its work, then switches from %s to %s: "
                 "prefills need %.2f of %u workers and decodes %.2f of %u, "
                 "within %.0f %%; best: %u prefill workers",
                 in->name, from, to, r->prefill_needed, r->prefills,
                 r->decode_needed, r->decodes, 100.0 * r->error,
                 r->best_prefills);
}

static void take(struct service *s, const struct roles_action *a)
{
    const struct pool_instance *in = pool_get(s->pool, a->instance);
    struct worker *w = worker_of(s, a->instance);
    const struct msg_role m = {.role = (uint8_t)a->to};

    if (!in || !w ||
        pool_take_role(s->pool, a->instance, in->kv_capacity_tokens) < 0)
        return;
    wire_buf_reset(&s->native.out);
    instances_pack_lead(s, w);
    msg_role_pack(&s->native.out, 0, &m);
    worker_link_send(w->link, &s->native.out);
    log_info("worker %s has the role %s", in->name, proto_role_name(m.role));
    service_freed(s);
}

static void go_on(struct service *s)
{
    struct roles_action a;

    while (roles_next(s->native.roles, &a))
        if (a.taken)
            take(s, &a);
        else
            log_begin(pool_get(s->pool, a.instance), &a);
    s->metrics.roles = *roles_counts(s->native.roles);
}

void switch_tick(struct service *service)
{
    if (!service->native.links || !cluster_leads(service->models->cluster))
        return;
    roles_pass(service->native.roles, loop_now_us(service->loop));
    go_on(service);
}

int switch_command(struct service *service, uint32_t id, unsigned role)
{
    int rc = roles_command(service->native.roles, id, role);

    if (rc)
        return rc;
    go_on(service);
    service_freed(service);
    return 0;
}
