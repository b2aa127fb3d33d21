/* A body or a prefill leg's reply. What legs are made of it is JSON if it was,
 * with the members that are set; an answer is rewritten alike however it is
 * cut; and what a bootstrap server says. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/connector/pair.h"
#include "conductor/link/upstream/bootstrap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The object in so many bytes; NULL: it is none, to jansson. */
static json_t *object_of(const char *text, size_t n)
{
    json_t *all = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);

    if (json_is_object(all))
        return all;
    json_decref(all);
    return NULL;
}

/* A leg of a body that is one: JSON, with nobody else's parameters. NULL: it is
 * of another body. Cleared. */
static json_t *leg_of(struct text_buf *out, int rc, const json_t *was)
{
    json_t *leg = NULL;

    if (was && rc == 0) {
        leg = object_of(out->data, out->len);
        if (!leg)
            abort();
    }
    text_buf_clear(out);
    return leg;
}

/* What a leg of vLLM says of its transfer; the members that it may be under. */
static const json_t *param(const json_t *leg, const char *role,
                           const char *name)
{
    const json_t *params = json_object_get(leg, "kv_transfer_params");

    if (role && json_object_size(params) != 1)
        abort();
    return json_object_get(role ? json_object_get(params, role) : params, name);
}

/* Both legs name one transfer, in parameters of ours alone. */
static void check_ids(const struct pair_protocol *pair, const char *name,
                      const char *of_prefill, const char *of_decode,
                      const struct pair_ask *ask, const json_t *was,
                      struct text_buf *out)
{
    json_t *first, *second;

    first = leg_of(out, pair->prefill(ask, out), was);
    second = leg_of(out, pair->decode(ask, NULL, out), was);
    if (first && second &&
        (!param(first, of_prefill, name) ||
         !json_equal(param(first, of_prefill, name),
                     param(second, of_decode, name)) ||
         json_integer_value(json_object_get(first, "max_tokens")) != 1))
        abort();
    json_decref(first);
    json_decref(second);
}

static void check_leg(const char *text, size_t n, const json_t *was)
{
    struct pair_ask ask = {text, n, .host = "10.0.0.1", .port = 8998,
                           .id = "e"};
    struct text_buf out;
    int rc;

    text_buf_init(&out, 1 << 24);
    rc = pair_sglang.prefill(&ask, &out);
    if (was && rc == 0) {
        json_t *leg = object_of(out.data, out.len);

        if (!leg ||
            json_integer_value(json_object_get(leg, "bootstrap_port")) != 8998)
            abort();
        json_decref(leg);
    }
    text_buf_clear(&out);
    check_ids(&pair_offloading, "kv_request_id", "remote_decoder",
              "remote_prefiller", &ask, was, &out);
    check_ids(&pair_mooncake, "transfer_id", NULL, NULL, &ask, was, &out);
    rc = pair_nixl.prefill(&ask, &out);
    if (was && rc == 0) {
        json_t *leg = object_of(out.data, out.len);

        if (!leg ||
            json_integer_value(json_object_get(leg, "max_tokens")) != 1 ||
            !json_is_false(json_object_get(leg, "stream")) ||
            json_object_get(leg, "stream_options"))
            abort();
        json_decref(leg);
    }
    text_buf_fini(&out);
}

static void check_reply(const char *text, size_t n)
{
    struct pair_reply reply;

    if (pair_reply_read(text, n, &reply) == 0 && reply.params &&
        (reply.params < text || reply.params + reply.n_params > text + n ||
         *reply.params != '{'))
        abort();
}

/* What a bootstrap server says. */
static void check_id(const char *text, size_t n)
{
    char id[BOOTSTRAP_ID_MAX] = "was";

    for (int rank = -1; rank < 2; rank++)
        if (!bootstrap_read(text, n, rank, id) && !*id)
            abort();
}

static void check_cuts(const char *text, size_t n)
{
    struct pair_usage whole = {.cached_tokens = 7}, cut = whole;
    struct text_buf a, b;
    size_t at = n ? (unsigned char)text[0] % n : 0;

    text_buf_init(&a, 1 << 24);
    text_buf_init(&b, 1 << 24);
    pair_usage_write(&whole, text, n, true, &a);
    pair_usage_write(&cut, text, at, false, &b);
    pair_usage_write(&cut, text + at, n - at, true, &b);
    if (a.len != b.len || (a.len && memcmp(a.data, b.data, a.len) != 0))
        abort();
    text_buf_fini(&a);
    text_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    json_t *was;

    if (!text)
        abort();
    memcpy(text, data, size);
    was = object_of(text, size);
    check_leg(text, size, was);
    check_reply(text, size);
    check_cuts(text, size);
    check_id(text, size);
    json_decref(was);
    free(text);
    return 0;
}
