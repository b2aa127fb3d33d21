/* See search.h. */
#include "tools/replay/study/size/search.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

size_t search_splits(uint32_t nodes, uint32_t prefill_max, uint32_t decode_max,
                     struct search_size *sizes)
{
    uint32_t decode_min = decode_max > 0 ? 1 : 0;
    size_t n = 0;

    for (uint32_t p = 1; p + decode_min <= nodes && p <= prefill_max; p++)
        if (nodes - p <= decode_max)
            sizes[n++] = (struct search_size){p, nodes - p};
    return n;
}

/* Evaluates all splits of `nodes`, in parallel. */
static int ask_splits(struct search *s, uint32_t nodes)
{
    size_t first = s->count;
    struct search_size *sizes = calloc((size_t)nodes, sizeof sizes[0]);

    if (!sizes)
        return -ENOMEM;
    size_t n = search_splits(nodes, s->prefill_max, s->decode_max, sizes);
    int rc = array_reserve(s->answers, s->capacity, s->count + n);
    for (size_t i = 0; i < n && rc == 0; i++)
        s->answers[s->count++] = (struct search_answer){.size = sizes[i]};
    free(sizes);
    if (rc == 0 && n > 0)
        rc = s->ask(s->arg, s->answers + first, n);
    if (rc != 0)
        s->count = first;
    return rc;
}

/* Keeps the best answer from `first` on; fewer prefill nodes come first. */
static void keep_best(struct search *s, size_t first)
{
    for (size_t i = first; i < s->count; i++) {
        const struct search_answer *a = &s->answers[i];

        if (a->meets &&
            (!s->found || a->effective_ratio > s->best.effective_ratio)) {
            s->best = *a;
            s->found = true;
        }
    }
}

int search_run(struct search *s)
{
    uint32_t nodes = s->decode_max > 0 ? 2 : 1;
    int rc = 0;

    for (; rc == 0 && !s->found && nodes <= s->prefill_max + s->decode_max;
         nodes++) {
        size_t first = s->count;

        rc = ask_splits(s, nodes);
        if (rc == 0)
            keep_best(s, first);
    }
    return rc;
}
