/*
 * vLLM's NixlConnector: the decode engine fetches the KV from the prefill
 * engine, which keeps it for a while (kv_lease_duration, 30 s). The prefill
 * leg's reply has parameters that say where. The decode leg gets them
 * unchanged, with the same prompt: with another prompt a vLLM engine exits.
 * Without parameters, as when the first token ended the answer, there is
 * nothing to fetch, and the decode engine computes the prompt itself.
 */
#include "conductor/connector/pair.h"

static int prefill(const struct pair_ask *ask, struct text_buf *out)
{
    return pair_edit_prefill(
        ask, pair_prefill_drops,
        "\"kv_transfer_params\":{\"do_remote_decode\":true,"
        "\"do_remote_prefill\":false,\"remote_engine_id\":null,"
        "\"remote_block_ids\":null,\"remote_host\":null,\"remote_port\":null}",
        out);
}

static int decode(const struct pair_ask *ask, const struct pair_reply *reply,
                  struct text_buf *out)
{
    struct text_buf set;

    text_buf_init(&set, reply->n_params + 64);
    text_buf_puts(&set, "\"kv_transfer_params\":");
    text_buf_add(&set, reply->params, reply->n_params);
    return pair_edit_with(ask, pair_drops, &set, out);
}

const struct pair_protocol pair_nixl = {
    .kind = "vllm",
    .passes_on = "kv_transfer_params",
    .alone = true,
    .leased = true,
    .prefill = prefill,
    .decode = decode,
};
