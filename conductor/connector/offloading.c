/*
 * vLLM's OffloadingConnector with its tier p2p: the prefill engine puts the
 * prompt's KV into its own memory under an id that both legs name, and the
 * decode engine fetches it from there (vllm/v1/kv_offload/tiering/p2p). The
 * prefill engine keeps it for unbound_store_timeout_s, 60 s.
 *
 * The prefill leg's reply has no parameters. Its leg ends first all the same: a
 * decode engine waits 30 s at most, and holds blocks meanwhile.
 */
#include <stdio.h>

#include "conductor/connector/pair.h"

static int prefill(const struct pair_ask *ask, struct text_buf *out)
{
    char set[128];

    snprintf(set, sizeof(set),
             "\"kv_transfer_params\":{\"remote_decoder\":{"
             "\"kv_request_id\":\"%016llx\"}}",
             (unsigned long long)ask->room);
    return pair_edit_prefill(ask, pair_prefill_drops, set, out);
}

static int decode(const struct pair_ask *ask, const struct pair_reply *reply,
                  struct text_buf *out)
{
    struct text_buf set;

    (void)reply;
    text_buf_init(&set, 4096);
    text_buf_printf(&set,
                    "\"kv_transfer_params\":{\"remote_prefiller\":{"
                    "\"kv_request_id\":\"%016llx\",\"remote_host\":",
                    (unsigned long long)ask->room);
    text_buf_json_str(&set, ask->host);
    text_buf_printf(&set, ",\"remote_port\":%lld}}",
                    (long long)(ask->port + ask->rank));
    return pair_edit_with(ask, pair_drops, &set, out);
}

const struct pair_protocol pair_offloading = {
    .kind = "vllm",
    .alone = true,
    .leased = true,
    .meets = true,
    .ranked = true,
    .port = 5710,
    .prefill = prefill,
    .decode = decode,
};
