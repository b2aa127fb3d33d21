/* Numbers of messages. */
#include "conductor/link/events/sequence.h"

uint64_t kv_sequence_wanted(const struct kv_sequence *s)
{
    return s->any_applied ? s->applied + 1 : 0;
}

enum kv_verdict kv_sequence_live(struct kv_sequence *s, uint64_t number,
                                 double time_s)
{
    bool down = s->any_live && number <= s->live;

    s->any_live = true;
    s->live = number;
    if (down)
        return KV_SEQUENCE_RESTART;
    if (number == kv_sequence_wanted(s))
        return KV_SEQUENCE_NEXT;
    if (number > kv_sequence_wanted(s))
        return KV_SEQUENCE_GAP;
    /* A replay had this number. A message newer than all of the replay is
     * another process's. */
    return time_s > s->time_s && s->time_s > 0 ? KV_SEQUENCE_RESTART
                                               : KV_SEQUENCE_DUPLICATE;
}

void kv_sequence_applied(struct kv_sequence *s, uint64_t number, double time_s)
{
    if (!s->any_applied)
        s->first = number;
    s->any_applied = true;
    s->applied = number;
    s->time_s = time_s;
}

void kv_sequence_forget(struct kv_sequence *s)
{
    s->any_applied = false;
    s->applied = 0;
    s->time_s = 0;
}

void kv_sequence_begin(struct kv_sequence *s)
{
    *s = (struct kv_sequence){0};
}
