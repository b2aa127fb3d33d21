/* What a request without room waits for, where it decodes where it is
 * prefilled. */
#include "conductor/core/schedule/internal.h"

struct schedule_room schedule_room(const struct scheduler *s,
                                   const struct schedule_request *request,
                                   const struct schedule_decision *decision)
{
    const struct pool_instance *i =
        s->model.coupled && s->bypass > 0 &&
                decision->verdict == SCHEDULE_DECODE_FULL
            ? pool_get(s->pool, decision->chosen.instance)
            : NULL;

    if (!i || (i->role & ROLE_DECODE) == 0) /* of a pair: any that decodes */
        return (struct schedule_room){.instance = POOL_NO_INSTANCE};
    return (struct schedule_room){
        .instance = i->id,
        .had_tokens = pool_decode_room_tokens(i),
        .needs_tokens =
            pool_kv_tokens(i, request->n_tokens, request->max_output_tokens)};
}

bool schedule_room_came(const struct scheduler *s,
                        const struct schedule_room *room)
{
    const struct pool_instance *i = pool_get(s->pool, room->instance);

    return !i || i->health != HEALTH_READY ||
           pool_decode_room_tokens(i) > room->had_tokens;
}

void schedule_await(const struct scheduler *s, const struct schedule_room *room)
{
    pool_await(s->pool, room->instance, room->needs_tokens);
}

void schedule_await_none(const struct scheduler *s)
{
    pool_await_none(s->pool);
}
