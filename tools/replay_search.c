/* See replay_search.h. */
#include "tools/replay_search.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t nodes_of(struct search_size size)
{
    return size.prefill + size.decode;
}

static struct search_answer *known(struct search *s, struct search_size size)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->answers[i].size.prefill == size.prefill &&
            s->answers[i].size.decode == size.decode) {
            return &s->answers[i];
        }
    }
    return NULL;
}

static int reserve(struct search *s, size_t more)
{
    size_t capacity = s->capacity == 0 ? 64 : s->capacity;
    while (capacity < s->count + more) {
        capacity *= 2;
    }
    struct search_answer *answers =
        realloc(s->answers, capacity * sizeof answers[0]);
    if (answers == NULL) {
        return -ENOMEM;
    }
    s->answers = answers;
    s->capacity = capacity;
    return 0;
}

/* Asks for those of sizes[0 .. n) that are not known yet. */
static int ask(struct search *s, const struct search_size *sizes, size_t n)
{
    int rc = reserve(s, n);
    size_t first = s->count;
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        if (known(s, sizes[i]) == NULL) {
            s->answers[s->count++] = (struct search_answer){.size = sizes[i]};
        }
    }
    rc = s->count > first ? s->ask(s->arg, s->answers + first, s->count - first)
                          : 0;
    if (rc != 0) {
        s->count = first;
    }
    return rc;
}

/* 1: it meets the target, 0: it does not, or a negative errno. */
static int meets(struct search *s, struct search_size size)
{
    int rc = ask(s, &size, 1);
    return rc != 0 ? rc : known(s, size)->meets;
}

static struct search_size sized(bool prefill, uint32_t n, uint32_t other)
{
    return prefill ? (struct search_size){n, other}
                   : (struct search_size){other, n};
}

/* The least n in low .. high that meets the target beside `other` nodes of the
 * other kind; `high` is known to. Returns it, or a negative errno. */
static int64_t least(struct search *s, bool prefill, uint32_t low,
                     uint32_t high, uint32_t other)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int rc = meets(s, sized(prefill, middle, other));
        if (rc < 0) {
            return rc;
        }
        if (rc > 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return high;
}

static void keep_best(struct search *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct search_answer *a = &s->answers[i];
        uint32_t nodes = nodes_of(a->size);
        uint32_t best = nodes_of(s->best.size);
        bool better = !s->found || nodes < best ||
                      (nodes == best &&
                       (a->effective_ratio > s->best.effective_ratio ||
                        (!(a->effective_ratio < s->best.effective_ratio) &&
                         a->size.prefill < s->best.size.prefill)));
        if (a->meets && better) {
            s->best = *a;
            s->found = true;
        }
    }
}

/* All splits of so many nodes, side by side. */
static int ask_splits(struct search *s, uint32_t nodes)
{
    uint32_t decode_min = s->decode_max > 0 ? 1 : 0;
    size_t n = 0;
    struct search_size *sizes = calloc((size_t)nodes + 1, sizeof sizes[0]);
    if (sizes == NULL) {
        return -ENOMEM;
    }
    for (uint32_t p = 1; p + decode_min <= nodes && p <= s->prefill_max; p++) {
        uint32_t d = nodes - p;
        if (d <= s->decode_max) {
            sizes[n++] = (struct search_size){p, d};
        }
    }
    int rc = n > 0 ? ask(s, sizes, n) : 0;
    free(sizes);
    return rc;
}

/* Along the border: with every prefill node more, fewer decode nodes do. That
 * d still does with one prefill node more is not asked but assumed; what
 * search_run() says is checked at the end. */
static int walk(struct search *s)
{
    uint32_t decode_min = s->decode_max > 0 ? 1 : 0;
    int64_t d = s->decode_max;
    int64_t p = least(s, true, 1, s->prefill_max, (uint32_t)d);
    if (p < 0) {
        return (int)p;
    }
    for (; p <= s->prefill_max && d >= 0; p++) {
        d = least(s, false, decode_min, (uint32_t)d, (uint32_t)p);
        keep_best(s);
        uint32_t least_next = (uint32_t)p + 1 + decode_min;
        if (d == decode_min ||
            (!s->whole_border && least_next > nodes_of(s->best.size)) ||
            p >= nodes_of(s->best.size)) {
            break;
        }
    }
    return d < 0 ? (int)d : 0;
}

int search_run(struct search *s)
{
    int rc = meets(s, (struct search_size){s->prefill_max, s->decode_max});
    if (rc <= 0) {
        return rc;
    }
    rc = walk(s);
    for (uint32_t nodes = 0; rc == 0;) {
        keep_best(s);
        if (nodes_of(s->best.size) == nodes) {
            break;
        }
        nodes = nodes_of(s->best.size);
        rc = ask_splits(s, nodes - 1);
        if (rc == 0) {
            rc = ask_splits(s, nodes);
        }
    }
    return rc;
}
