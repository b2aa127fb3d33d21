/*
 * vLLM's MooncakeConnector: the decode engine asks the prefill engine for the
 * KV of a transfer, which both legs name, finds that engine by its bootstrap
 * server and its id, and waits until the prompt is computed.
 *
 * A prefill engine hands over KV only if its leg ends by length. If the first
 * token ended the answer, the decode engine would wait until its time-out
 * (VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT, 480 s): so EOS and stop words are off.
 */
#include <stdio.h>
#include <string.h>

#include "conductor/connector/pair.h"

static int prefill(const struct pair_ask *ask, struct text_buf *out)
{
    static const char *const drop[] = {PAIR_PREFILL_DROPS, "ignore_eos", "stop",
                                       "stop_token_ids", NULL};
    char set[192];

    snprintf(set, sizeof(set),
             "\"kv_transfer_params\":{\"do_remote_decode\":true,"
             "\"do_remote_prefill\":false,\"transfer_id\":\"%016llx\"},"
             "\"ignore_eos\":true",
             (unsigned long long)ask->room);
    return pair_edit_prefill(ask, drop, set, out);
}

static int decode(const struct pair_ask *ask, const struct pair_reply *reply,
                  struct text_buf *out)
{
    bool v6 = strchr(ask->host, ':');
    struct text_buf set, address;
    int error;

    (void)reply;
    text_buf_init(&set, 4096);
    text_buf_init(&address, 1024);
    text_buf_printf(&address, "http://%s%s%s:%lld", v6 ? "[" : "", ask->host,
                    v6 ? "]" : "", (long long)ask->port);
    text_buf_add(&address, "", 1);
    error = address.error;
    text_buf_printf(&set,
                    "\"kv_transfer_params\":{\"do_remote_decode\":false,"
                    "\"do_remote_prefill\":true,\"transfer_id\":\"%016llx\","
                    "\"remote_bootstrap_addr\":",
                    (unsigned long long)ask->room);
    text_buf_json_str(&set, error ? "" : address.data);
    text_buf_puts(&set, ",\"remote_engine_id\":");
    text_buf_json_str(&set, ask->id);
    text_buf_puts(&set, "}");
    text_buf_fini(&address);
    set.error = set.error ? set.error : error;
    return pair_edit_with(ask, pair_drops, &set, out);
}

const struct pair_protocol pair_mooncake = {
    .kind = "vllm",
    .alone = true,
    .leased = true,
    .concurrent = true,
    .meets = true,
    .ranked = true,
    .bootstraps = true,
    .port = 8998,
    .prefill = prefill,
    .decode = decode,
};
