/* See sessions.h. */
#include "conductor/service/sessions.h"

#include <stdlib.h>

#include "conductor/core/pool/pool.h"

uint32_t sessions_find(const struct sessions *all, uint64_t number)
{
    const struct session *one = all ? &all->at[number % SESSIONS_MAX] : NULL;

    return number && one && one->number == number ? one->instance
                                                  : POOL_NO_INSTANCE;
}

void sessions_note(struct sessions **all, uint64_t number, uint32_t instance)
{
    if (number == 0)
        return;
    if (!*all)
        *all = calloc(1, sizeof(**all));
    if (*all)
        (*all)->at[number % SESSIONS_MAX] = (struct session){number, instance};
}
