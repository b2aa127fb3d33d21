/* Metrics of each tenant. */
#include <errno.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/observe.h"
#include "conductor/service/tenant/internal.h"

static int put_help(struct text_buf *out, const char *name, const char *type,
                    const char *help)
{
    return text_buf_printf(out,
                           "# HELP conductor_tenant_%s %s\n"
                           "# TYPE conductor_tenant_%s %s\n",
                           name, help, name, type) < 0;
}

static int put_requests(const struct tenants *t, struct text_buf *out)
{
    int bad = put_help(out, "requests_total", "counter",
                       "Requests by tenant and outcome.");

    for (size_t i = 0; i <= t->n; i++)
        for (enum metrics_outcome k = 0; k < METRICS_OUTCOMES; k++)
            bad |=
                text_buf_printf(out,
                                "conductor_tenant_requests_total{tenant=\"%s\","
                                "outcome=\"%s\"} %llu\n",
                                t->all[i].name, outcome_name(k),
                                (unsigned long long)t->all[i].requests[k]) < 0;
    return bad;
}

static int put_line(struct text_buf *out, const char *metric,
                    const struct tenant *one, double value)
{
    return text_buf_printf(out, "conductor_tenant_%s{tenant=\"%s\"} %.15g\n",
                           metric, one->name, value) < 0;
}

int tenants_write(struct tenants *t, struct text_buf *out)
{
    int bad = put_requests(t, out);

    bad |=
        put_help(out, "computed_tokens_total", "counter",
                 "Prompt tokens scheduled for computing, background included.");
    for (size_t i = 0; i <= t->n; i++)
        bad |= put_line(out, "computed_tokens_total", &t->all[i],
                        (double)t->all[i].tokens_sent);
    bad |= put_help(out, "limited_total", "counter",
                    "Requests refused by the tenant's own limits.");
    for (size_t i = 0; i <= t->n; i++)
        bad |= put_line(out, "limited_total", &t->all[i],
                        (double)t->all[i].n_limited);
    bad |= put_help(out, "waiting", "gauge",
                    "Requests that wait for an instance.");
    for (size_t i = 0; i <= t->n; i++)
        bad |= put_line(out, "waiting", &t->all[i], (double)t->all[i].waiting);
    bad |= put_help(out, "standing_ratio", "gauge",
                    "The tenant's share of the last minute's work, divided by "
                    "its fair share; the lowest over models. Only tenants with "
                    "requests in that minute.");
    for (size_t i = 0; i <= t->n; i++)
        if (t->all[i].standing >= 0.0)
            bad |=
                put_line(out, "standing_ratio", &t->all[i], t->all[i].standing);
    for (size_t i = 0; i <= t->n; i++) {
        t->all[i].waiting = 0;
        t->all[i].standing = -1.0;
    }
    return bad ? -ENOMEM : 0;
}
