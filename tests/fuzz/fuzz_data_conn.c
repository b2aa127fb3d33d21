/* Feeds requests and answers of a data connection, and what they ask for to a
 * grant: what it does not cover is never given out. */
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/engine/tcp/internal.h"

#define REGION_BYTES 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(struct tcp_offer *o, const struct tcp_request *r)
{
    struct tcp_grant *grant;
    int rc;
    const uint8_t *memory = tcp_offer_use(o, r, &grant, &rc);

    if (!memory)
        return;
    uint64_t from = (uint64_t)(memory - o->tcp->regions[0].memory);
    if (r->region != 0 || from != r->offset || from < 100 ||
        from + r->bytes > 400 || (from + r->bytes > 200 && from < 300))
        abort();
    tcp_grant_unuse(grant);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t memory[REGION_BYTES];
    static struct tcp tcp = {.regions = {{memory, REGION_BYTES}},
                             .n_regions = 1};
    struct tcp_offer offer = {.tcp = &tcp};
    struct tcp_grant *grant =
        calloc(1, sizeof(*grant) + 2 * sizeof(grant->ranges[0]));
    struct tcp_request r;
    uint8_t again[TCP_REQUEST_BYTES];

    if (!grant)
        return 0;
    grant->offer = &offer;
    grant->n = 2;
    grant->ranges[0] = (struct transport_range){0, 100, 100};
    grant->ranges[1] = (struct transport_range){0, 300, 100};
    LIST_INIT(&offer.grants);
    LIST_INSERT_HEAD(&offer.grants, grant, link);
    for (; size >= TCP_REQUEST_BYTES;
         data += TCP_REQUEST_BYTES, size -= TCP_REQUEST_BYTES) {
        (void)tcp_answer_decode(data);
        if (tcp_request_decode(data, &r))
            continue;
        tcp_request_encode(&r, again);
        if (memcmp(again, data, TCP_REQUEST_BYTES) != 0)
            abort();
        r.grant_id = 0;
        use(&offer, &r);
    }
    free(grant);
    return 0;
}
