/* Polls upload tickets, and handles a lost card. */
#include <stdio.h>

#include "workers/engine/cuda/engine.h"

int cuda_lose(struct cuda_engine *e)
{
    e->lost = true;
    snprintf(e->base.error, sizeof(e->base.error), "%s: %s",
             cuda_card_name(e->card), cuda_card_error(e->card));
    return -ENODEV;
}

int cuda_poll_tickets(struct cuda_engine *e, bool wait)
{
    while (e->ticket_over < e->ticket) {
        uint64_t next = e->ticket_over + 1;
        int rc = cuda_card_ticket_over(e->card, (uint32_t)(next % CUDA_TICKETS),
                                       wait);

        if (rc < 0)
            return cuda_lose(e);
        if (rc == 0)
            break;
        e->ticket_over = next;
    }
    return 0;
}
