/* See ties.h. Requests are swapped, so their blocks are never copied. */
#include "tools/replay/trace/ties.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/array.h"

void replay_ties_init(struct replay_ties *ties, uint64_t seed)
{
    random_init(&ties->random, seed);
    ties->ahead = 1;
}

void replay_ties_fini(struct replay_ties *ties)
{
    for (size_t i = 0; i < ties->capacity; i++)
        trace_request_fini(&ties->at[i]);
    free(ties->at);
}

static void swap(struct trace_request *a, struct trace_request *b)
{
    struct trace_request t = *a;

    *a = *b;
    *b = t;
}

/* Makes room for i + 1 requests; new ones are {0}. */
static int make_room(struct replay_ties *ties, size_t i)
{
    size_t before = ties->capacity;
    struct trace_request *at =
        array_room(ties->at, &ties->capacity, i + 1, sizeof at[0]);

    if (!at)
        return -ENOMEM;
    ties->at = at;
    memset(at + before, 0, (ties->capacity - before) * sizeof at[0]);
    return 0;
}

/* Reads all requests of the next timestamp. The first one was read with the
 * previous timestamp, as the one after it. */
static int gather(struct replay_ties *ties,
                  int (*next)(void *, struct trace_request *), void *arg)
{
    bool first = ties->capacity == 0;
    int rc = ties->ahead == 1 ? make_room(ties, 1) : ties->ahead;

    if (rc < 0 || ties->ahead != 1)
        return rc;
    if (first)
        ties->ahead = next(arg, &ties->at[0]);
    else
        swap(&ties->at[0], &ties->at[ties->n]);
    ties->n = ties->given = 0;
    if (ties->ahead != 1)
        return ties->ahead;
    do {
        rc = make_room(ties, ++ties->n);
        if (rc == 0)
            ties->ahead = next(arg, &ties->at[ties->n]);
    } while (rc == 0 && ties->ahead == 1 && ties->n < REPLAY_TIES_MAX &&
             ties->at[ties->n].arrival_us == ties->at[0].arrival_us);
    return rc < 0 ? rc : 1;
}

int replay_ties_next(struct replay_ties *ties,
                     int (*next)(void *arg, struct trace_request *request),
                     void *arg, struct trace_request *request)
{
    int rc = ties->given < ties->n ? 1 : gather(ties, next, arg);

    if (rc != 1)
        return rc;
    size_t left = ties->n - ties->given;
    size_t pick = ties->given + random_below(&ties->random, (uint32_t)left);

    swap(&ties->at[ties->given], &ties->at[pick]);
    swap(&ties->at[ties->given++], request);
    return 1;
}
