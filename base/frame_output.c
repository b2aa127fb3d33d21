/* See frame_output.h. */
#include "base/frame_output.h"

#include <errno.h>
#include <event2/buffer.h>

#include "base/frame_conn.h"

int frame_output_init(struct frame_output *o, struct evbuffer *to)
{
    *o = (struct frame_output){.to = to, .small = evbuffer_new()};
    return o->small ? 0 : -ENOMEM;
}

void frame_output_fini(struct frame_output *o)
{
    /* libevent would give back what is lent later, perhaps after the owner is
     * gone. */
    if (o->to) {
        evbuffer_unfreeze(o->to, 1);
        evbuffer_drain(o->to, evbuffer_get_length(o->to));
    }
    if (o->small)
        evbuffer_free(o->small);
}

/* Behind lent memory evbuffer_add() would allocate as much again for its bytes,
 * however few they are. */
int frame_output_add(struct frame_output *o, const void *data, size_t n)
{
    bool lent = o->lent_last;

    o->lent_last = false;
    if (!lent)
        return evbuffer_add(o->to, data, n) ? -ENOMEM : 0;
    return evbuffer_add(o->small, data, n) ||
                   evbuffer_add_buffer(o->to, o->small)
               ? -ENOMEM
               : 0;
}

/* evbuffer's callback has the bytes too. */
static void on_sent(const void *, size_t, void *arg)
{
    struct frame_loan *loan = arg;

    loan->over(loan);
}

int frame_output_lend(struct frame_output *o, const void *data, size_t n,
                      struct frame_loan *loan)
{
    if (evbuffer_add_reference(o->to, data, n, on_sent, loan))
        return -ENOMEM;
    o->lent_last = true;
    return 0;
}
