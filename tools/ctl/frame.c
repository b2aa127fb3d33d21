/* See frame.h. */
#include "tools/ctl/frame.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl.h"

#define BAR 8

static void put_line(struct frame *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put_line(struct frame *f, const char *format, ...)
{
    va_list list;

    if (f->n == FRAME_LINES_MAX)
        return;
    va_start(list, format);
    vsnprintf(f->lines[f->n], f->columns + 1, format, list);
    va_end(list);
    ctl_tame(f->lines[f->n++]);
}

/* Returns the number at the path a, b of an object; at a if b is NULL. */
static double number(const json_t *in, const char *a, const char *b)
{
    const json_t *one = json_object_get(in, a);

    return json_number_value(b ? json_object_get(one, b) : one);
}

static const char *show_ms(const json_t *in, const char *key, char text[32])
{
    const json_t *ms = json_object_get(in, key);
    double v = json_number_value(ms);

    if (!json_is_number(ms))
        snprintf(text, 32, "-");
    else if (v >= 10000)
        snprintf(text, 32, "%.1f s", v / 1000);
    else
        snprintf(text, 32, "%.*f ms", v < 10 ? 1 : 0, v);
    return text;
}

static const char *show_big(double n, char text[32])
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    size_t unit = 0;

    for (; n >= 1000 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        n /= 1000;
    snprintf(text, 32, "%.*f%s", n < 10 && unit ? 1 : 0, n, units[unit]);
    return text;
}

static const char *show_bytes(double n, char text[32])
{
    size_t length = strlen(show_big(n, text));

    snprintf(text + length, 32 - length, n < 1000 ? " B" : "B");
    return text;
}

static const char *show_part(double part, double whole, char text[32])
{
    if (whole > 0)
        snprintf(text, 32, "%.1f %%", 100 * part / whole);
    else
        snprintf(text, 32, "-");
    return text;
}

static void put_rate(char *to, size_t size, double per_s)
{
    char text[32];

    if (per_s >= 0)
        snprintf(to, size, " (%s/s)", show_bytes(per_s, text));
    else
        *to = '\0';
}

static void put_models(struct frame *f, const struct frame_facts *facts)
{
    const json_t *model, *all = json_object_get(facts->overview, "models");
    char text[FRAME_COLUMNS_MAX] = "", name[64];
    size_t i, n = 0;

    json_array_foreach(all, i, model)
    {
        bool ready = json_is_true(json_object_get(model, "ready"));

        if (n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %sready",
                                  i ? ", " : "",
                                  ctl_show(model, "name", name, sizeof name),
                                  ready ? "" : "not ");
    }
    put_line(f, "conductor %s  %s", facts->where,
             *facts->trouble ? facts->trouble
             : *text         ? text
                             : "no model is served");
}

static void put_requests(struct frame *f, const json_t *o)
{
    const json_t *m = json_object_get(o, "last_minute");
    double s = number(m, "seconds", NULL);
    char a[32], b[32], c[32], d[32];

    s = s > 0 ? s : 1;
    put_line(f,
             "requests   %.0f in work; per s: %.1f in time, %.1f late, %.1f "
             "rejected, %.1f failed",
             number(o, "requests", "in_flight"), number(m, "in_time", NULL) / s,
             number(m, "late", NULL) / s, number(m, "rejected", NULL) / s,
             number(m, "failed", NULL) / s);
    put_line(f,
             "TTFT       mean %s, p99 %s; p50 %s, predicted %s (last minute)",
             show_ms(m, "ttft_mean_ms", a), show_ms(m, "ttft_p99_ms", b),
             show_ms(m, "ttft_p50_ms", c), show_ms(m, "predicted_p50_ms", d));
    put_line(f, "promises   %.0f kept, %.0f late; in all %s kept, %s late",
             number(m, "promises_kept", NULL), number(m, "promises_late", NULL),
             show_big(number(o, "promises", "kept"), a),
             show_big(number(o, "promises", "late"), b));
}

/* A share of prompt tokens, and of how many of these engines did not tell all:
 * their part is a guess. */
static const char *show_hits(double reused, double prompt, double guessed,
                             char text[96])
{
    char part[32], mark[32];

    show_part(reused, prompt, part);
    if (guessed > 0)
        snprintf(text, 96, "%s (guessed for %s)", part,
                 show_part(guessed, prompt, mark));
    else
        snprintf(text, 96, "%s", part);
    return text;
}

static void put_hits(struct frame *f, const json_t *o)
{
    const json_t *m = json_object_get(o, "last_minute");
    double local = number(o, "tokens", "local"),
           fetched = number(o, "tokens", "fetched"),
           disk = number(o, "tokens", "disk"),
           shared = number(o, "tokens", "shared");
    /* For most prompts both the length and the cached part are guessed, or the
     * cached part alone. */
    double guessed =
        fmax(number(o, "guessed", "length"), number(o, "guessed", "cached"));
    char a[96], b[96], c[32], d[32], e[32], g[32];

    put_line(f, "hits       %s, in all %s",
             show_hits(number(m, "reused_tokens", NULL),
                       number(m, "prompt_tokens", NULL),
                       number(m, "guessed_tokens", NULL), a),
             show_hits(local + fetched + disk + shared,
                       number(o, "tokens", "prompt"), guessed, b));
    put_line(f, "cached     here %s, fetched %s, disk %s, store %s tokens",
             show_big(local, c), show_big(fetched, d), show_big(disk, e),
             show_big(shared, g));
}

static void put_rejections(struct frame *f, const json_t *o)
{
    const json_t *count, *all = json_object_get(o, "rejections");
    char text[FRAME_COLUMNS_MAX] = "";
    const char *why;
    size_t n = 0;

    json_object_foreach((json_t *)(uintptr_t)all, why, count)
    {
        if (json_number_value(count) > 0 && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%.30s %.0f",
                                  n ? ", " : " (", why,
                                  json_number_value(count));
    }
    put_line(f, "rejected   %.0f%s%s; failed %.0f, retries %.0f",
             number(o, "requests", "rejected"), text, *text ? ")" : "",
             number(o, "requests", "failed"), number(o, "requests", "retries"));
}

static void put_transfers(struct frame *f, const struct frame_facts *facts)
{
    char a[32], b[32], c[32], fetched[48], disk[48];

    put_rate(fetched, sizeof fetched, facts->fetched_per_s);
    put_rate(disk, sizeof disk, facts->disk_per_s);
    put_line(
        f, "transfers  fetched %s%s, from disk %s%s, store %s",
        show_bytes(number(facts->overview, "transfers", "fetched_bytes"), a),
        fetched,
        show_bytes(number(facts->overview, "transfers", "disk_bytes"), b), disk,
        show_bytes(number(facts->overview, "transfers", "shared_bytes"), c));
}

static void put_pools(struct frame *f, const json_t *o)
{
    const json_t *pools = json_object_get(o, "pools");
    const json_t *p = json_object_get(pools, "prefill");
    const json_t *d = json_object_get(pools, "decode");
    char a[32], b[32];

    put_line(f, "prefill    %.0f of %.0f ready; %.0f wait, %.0f run; KV %s",
             number(p, "ready", NULL), number(p, "instances", NULL),
             number(p, "waiting", NULL), number(p, "running", NULL),
             show_part(number(p, "kv_used_tokens", NULL),
                       number(p, "kv_capacity_tokens", NULL), a));
    put_line(f, "decode     %.0f of %.0f ready; %.0f decode; KV %s",
             number(d, "ready", NULL), number(d, "instances", NULL),
             number(d, "decodes", NULL),
             show_part(number(d, "kv_used_tokens", NULL),
                       number(d, "kv_capacity_tokens", NULL), b));
}

static const char *show_bar(const json_t *instance, char text[BAR + 16])
{
    double used = number(instance, "kv_used_tokens", NULL);
    double all = number(instance, "kv_capacity_tokens", NULL);
    int filled = all > 0 ? (int)(BAR * used / all + 0.5) : 0;

    filled = filled > BAR ? BAR : filled;
    if (all > 0)
        snprintf(text, BAR + 16, "[%.*s%.*s] %3.0f%%", filled, "########",
                 BAR - filled, "        ", 100 * used / all);
    else
        snprintf(text, BAR + 16, "%*s", BAR + 7, "-");
    return text;
}

static void put_instance(struct frame *f, const json_t *instance)
{
    char name[64], role[32], state[32], bar[BAR + 16], ratio[32];

    put_line(f, "%-15.15s %-8.8s %-15.15s %4.0f %4.0f %4.0f %s %s",
             ctl_show(instance, "name", name, sizeof name),
             ctl_show(instance, "role", role, sizeof role),
             ctl_state(instance, state, sizeof state),
             number(instance, "prefills_waiting", NULL),
             number(instance, "prefills", NULL) -
                 number(instance, "prefills_waiting", NULL),
             number(instance, "decodes", NULL), show_bar(instance, bar),
             ctl_show(instance, "prefill_ratio", ratio, sizeof ratio));
}

static void put_instances(struct frame *f, const json_t *list, size_t lines,
                          size_t *from)
{
    size_t n = json_array_size(list), room;

    room = lines > f->n + 1 ? lines - f->n - 1 : 0;
    if (*from + room > n)
        *from = n > room ? n - room : 0;
    put_line(f, "%-15s %-8s %-15s %4s %4s %4s %-15s %s", "INSTANCE", "ROLE",
             "STATE", "WAIT", "RUN", "DEC", "KV", "REAL/PR");
    for (size_t i = *from; i < n && i - *from < room; i++)
        put_instance(f, json_array_get(list, i));
}

void frame_make(struct frame *f, const struct frame_facts *facts, size_t lines,
                size_t columns, size_t *from)
{
    const json_t *list = json_object_get(facts->instances, "instances");
    size_t n = json_array_size(list);

    f->n = 0;
    f->columns = columns < FRAME_COLUMNS_MAX ? columns : FRAME_COLUMNS_MAX;
    lines = lines < FRAME_LINES_MAX ? lines : FRAME_LINES_MAX;
    put_models(f, facts);
    if (facts->overview) {
        put_requests(f, facts->overview);
        put_hits(f, facts->overview);
        put_rejections(f, facts->overview);
        put_transfers(f, facts);
        put_pools(f, facts->overview);
        size_t first = *from;
        size_t room = lines > f->n + 2 ? lines - f->n - 2 : 0;
        if (first + room > n)
            first = n > room ? n - room : 0;
        if (n && room == 0)
            put_line(f, "instances  %zu: a higher terminal shows them", n);
        else
            put_line(f, "instances  %zu to %zu of %zu%s", n ? first + 1 : 0,
                     first + room < n ? first + room : n, n,
                     n > room ? "; up and down show the others" : "");
        put_instances(f, list, lines, from);
    }
    if (f->n > lines)
        f->n = lines;
}
