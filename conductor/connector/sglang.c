/*
 * SGLang's bootstrap: both engines get the same body at once, and meet in a
 * room at the prefill engine's bootstrap server, from where the decode engine
 * gets the KV. An engine of either role serves no request without a room.
 *
 * A request needs one room for each of its prompts and answers. SGLang numbers
 * them upwards from the first (GenerateReqInput, _normalize_bootstrap_params),
 * on both engines alike, so that one number is enough without knowing the
 * request's shape; the lowest bits are left for the count.
 */
#include "conductor/connector/pair.h"

/* A room's number has 63 bits; this many of the lowest are 0. */
#define COUNTED_BITS 16

static int prefill(const struct pair_ask *ask, struct text_buf *out)
{
    struct text_buf set;

    text_buf_init(&set, 1024);
    text_buf_puts(&set, "\"bootstrap_host\":");
    text_buf_json_str(&set, ask->host);
    text_buf_printf(
        &set, ",\"bootstrap_port\":%lld,\"bootstrap_room\":%llu",
        (long long)ask->port,
        (unsigned long long)(ask->room >> 1 >> COUNTED_BITS << COUNTED_BITS));
    return pair_edit_with(ask, pair_drops, &set, out);
}

const struct pair_protocol pair_sglang = {
    .kind = "sglang",
    .concurrent = true,
    .port = 8998,
    .any = true,
    .prefill = prefill,
};
