/*
 * The sections of /metrics, one after the other, each resumed where the last
 * piece ended. Services and instances may come and go in between: services are
 * found by their numbers, which only rise, instances by slot.
 */
#include "conductor/service/report/report.h"

#include <errno.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/report/internal.h"

#define PIECE_US 250
#define CLOCK_SLOTS 32 /* slots between two looks at the clock */

struct models_report {
    const struct models *models;
    size_t section;
    bool bad; /* out of memory */

    /* Position in the section: */
    size_t family;   /* index of the metric, in a section by instances */
    bool begun;      /* the family's head is written */
    uint32_t number; /* least number of the next service */
    uint32_t slot;   /* pool slot of the next instance */
    uint64_t buried; /* models->past.n when the sums began */
    struct report_sums sums;
};

static const struct service *service_from(const struct models *models,
                                          uint32_t number)
{
    const struct service *s = models->first;

    while (s && s->number < number)
        s = s->next;
    return s;
}

/* Sums up all services. A service removed meanwhile has moved its counts to
 * models->past: then the sums begin anew, so that each counts once. */
static bool totals(struct models_report *r, struct text_buf *out,
                   int64_t until_us)
{
    const struct models *models = r->models;
    const struct service *s;

    if (!r->begun || r->buried != models->past.n) {
        report_sums_begin(models, &r->sums);
        r->buried = models->past.n;
        r->number = 0;
        r->begun = true;
    }
    for (s = service_from(models, r->number); s; s = s->next) {
        if (loop_now_us(models->loop) >= until_us)
            return false;
        report_sums_add(&r->sums, s);
        r->number = s->number + 1;
    }
    r->bad |= report_sums_write(models, &r->sums, out);
    return true;
}

static bool tenants(struct models_report *r, struct text_buf *out, int64_t)
{
    int64_t now_us = loop_now_us(r->models->loop);

    for (struct service *s = r->models->first; s; s = s->next)
        tenants_weigh(r->models->tenants, &s->dispatch, now_us);
    r->bad |= tenants_write(r->models->tenants, out);
    return true;
}

/* Metrics with a line for each instance. */
struct families {
    size_t (*count)(void);
    int (*begin)(size_t family, struct text_buf *out);
    int (*line)(const struct service *s, uint32_t slot, size_t family,
                int64_t now_us, struct text_buf *out);
    /* Lines of what has no slot; NULL = none. */
    int (*others)(const struct models *models, size_t family,
                  struct text_buf *out);
};

/* Writes the rest of a family. Returns false if until_us came first. */
static bool lines(struct models_report *r, const struct families *f,
                  struct text_buf *out, int64_t until_us)
{
    const struct service *s = service_from(r->models, r->number);
    int64_t now_us = loop_now_us(r->models->loop);

    for (; s; s = s->next, r->slot = 0) {
        if (s->number != r->number)
            r->slot = 0;
        for (; r->slot < pool_slots(s->pool); r->slot++) {
            r->number = s->number;
            if (r->slot % CLOCK_SLOTS == 0) {
                now_us = loop_now_us(r->models->loop);
                if (now_us >= until_us)
                    return false;
            }
            r->bad |= f->line(s, r->slot, r->family, now_us, out);
        }
        r->number = s->number + 1;
    }
    return true;
}

static bool families(struct models_report *r, const struct families *f,
                     struct text_buf *out, int64_t until_us)
{
    for (; r->family < f->count(); r->family++) {
        if (!r->begun)
            r->bad |= f->begin(r->family, out);
        if (!r->begun && f->others)
            r->bad |= f->others(r->models, r->family, out);
        r->begun = true;
        if (!lines(r, f, out, until_us))
            return false;
        r->begun = false;
        r->number = r->slot = 0;
    }
    return true;
}

static bool instances(struct models_report *r, struct text_buf *out,
                      int64_t until_us)
{
    static const struct families f = {report_gauges, report_gauge_begin,
                                      report_gauge_line, report_gauge_scouts};

    return families(r, &f, out, until_us);
}

static int engine_line(const struct service *s, uint32_t slot, size_t family,
                       int64_t, struct text_buf *out)
{
    return engine_metric_line(s, slot, family, out);
}

static bool engines(struct models_report *r, struct text_buf *out,
                    int64_t until_us)
{
    static const struct families f = {engine_metrics, engine_metric_begin,
                                      engine_line, NULL};
    const struct service *s = r->models->first;

    while (s && !s->engines.n)
        s = s->next;
    return !s || families(r, &f, out, until_us);
}

static bool stores(struct models_report *r, struct text_buf *out, int64_t)
{
    r->bad |= stores_write_metrics(r->models->first, out);
    r->bad |= shared_write_metrics(models_native(r->models), out);
    return true;
}

static bool peers(struct models_report *r, struct text_buf *out, int64_t)
{
    r->bad |= report_peers(r->models->cluster, out);
    return true;
}

static bool process(struct models_report *r, struct text_buf *out, int64_t)
{
    r->bad |= losses_write(&r->models->losses, &r->models->drains,
                           loop_now_us(r->models->loop), out);
    r->bad |= report_process(r->models->start_s, out);
    return true;
}

/* Each section writes its rest. Returns false if until_us came first. */
static bool (*const sections[])(struct models_report *r, struct text_buf *out,
                                int64_t until_us) = {
    totals, tenants, instances, engines, stores, peers, process};

#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

struct models_report *models_report_new(const struct models *models)
{
    struct models_report *r = calloc(1, sizeof(*r));

    if (r)
        r->models = models;
    return r;
}

int models_report_next(struct models_report *r, struct text_buf *out)
{
    int64_t until_us = loop_now_us(r->models->loop) + PIECE_US;

    while (r->section < SECTIONS) {
        if (!sections[r->section](r, out, until_us))
            return r->bad ? -ENOMEM : 1;
        r->section++;
        r->family = 0;
        r->begun = false;
        r->number = r->slot = 0;
        if (loop_now_us(r->models->loop) >= until_us)
            break;
    }
    if (r->bad)
        return -ENOMEM;
    return r->section < SECTIONS;
}

void models_report_free(struct models_report *r)
{
    free(r);
}
