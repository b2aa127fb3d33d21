/* Calls to the sink, several blocks at a time. */
#include "conductor/link/events/recut/state.h"

void recut_say_all(struct recut *r)
{
    struct said *s = &r->said;

    if (s->n > 0 && s->stored)
        r->sink.stored(r->arg, s->tier, s->parent, s->keys, s->n);
    else if (s->n > 0)
        r->sink.removed(r->arg, s->tier, s->keys, s->n);
    s->n = 0;
}

void recut_say(struct recut *r, bool stored, enum block_tier tier,
               uint64_t before, uint64_t key)
{
    struct said *s = &r->said;

    if (s->n == SAID_BLOCKS || s->stored != stored || s->tier != tier ||
        (stored && s->n > 0 && s->keys[s->n - 1] != before))
        recut_say_all(r);
    if (s->n == 0)
        s->parent = before;
    s->stored = stored;
    s->tier = tier;
    s->keys[s->n++] = key;
}
