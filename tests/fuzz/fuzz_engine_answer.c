/* Any bytes as an engine's answer and its chunked body, as its metrics, and as
 * a body that goes on to an engine. */
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "conductor/front/openai/body/body.h"
#include "conductor/front/openai/body/member.h"
#include "conductor/http/parse.h"
#include "conductor/link/upstream/exchange/whose.h"
#include "conductor/link/upstream/facts.h"
#include "conductor/link/upstream/model_list.h"
#include "conductor/link/upstream/report.h"
#include "conductor/link/upstream/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_report(const char *bytes, size_t n, int64_t rank)
{
    static struct report_scan scan;
    struct engine_report whole;

    report_begin(&scan, rank);
    report_feed(&scan, bytes, n);
    report_end(&scan);
    whole = scan.report;
    report_begin(&scan, rank);
    report_feed(&scan, bytes, n / 2);
    report_feed(&scan, bytes + n / 2, n - n / 2);
    report_end(&scan);
    if (memcmp(&whole, &scan.report, sizeof(whole)) != 0)
        abort();
}

static void fuzz_models(const char *bytes, size_t n)
{
    struct model_list list, again;
    const struct model_wanted wanted = {list.model, &list.aliases,
                                        &list.adapters};

    if (model_list_read(bytes, n, NULL, &list))
        return;
    if (list.has_wanted || model_list_read(bytes, n, &wanted, &again) ||
        again.has_wanted != (*list.model != 0) || again.lacks)
        abort();
    for (uint8_t i = 0; i < list.aliases.n; i++)
        if (strcmp(engine_names_at(&list.aliases, i), list.model) == 0)
            abort();
}

/* Facts make an entry that a configuration could have. */
static void fuzz_facts(const char *bytes, size_t n)
{
    struct engine_config entry = {.dp_rank = -1};
    struct engine_facts facts;
    struct address at;

    facts_begin(&facts);
    facts_take_models(&facts, bytes, n);
    facts_take_version(&facts, bytes, n);
    facts_take_server(&facts, "::1", bytes, n);
    facts_apply(&facts, &entry);
    if (entry.kind >= ENGINE_AUTO || (facts.events_off && *facts.kv_events))
        abort();
    if (*entry.kv_events &&
        (strncmp(entry.kv_events, "tcp://", 6) != 0 ||
         address_parse(entry.kv_events + 6, &at) || at.port == 0))
        abort();
}

/* Whose answer a body is does not change with what comes behind; and a whole
 * object has the id that was found. */
static void fuzz_whose(const struct http_head *head, const char *bytes,
                       size_t n)
{
    const struct http_slice id = {"r-1", 3};
    enum whose whole = whose_answer(head, bytes, n, true, id), part;
    json_t *object = json_loadb(bytes, n, 0, NULL);
    const char *told = json_string_value(json_object_get(object, "id"));

    if (whole == WHOSE_MORE)
        abort();
    for (size_t i = 0; i <= n && i < 64; i++) {
        part = whose_answer(head, bytes, i, false, id);
        if (part != WHOSE_MORE && part != whole)
            abort();
    }
    if (object && whole == WHOSE_OWN && !http_find(head, "x-request-id") &&
        json_object_size(object) == 1 &&
        (!told || strlen(told) < 3 ||
         strcmp(told + strlen(told) - 3, "r-1") != 0))
        abort();
    json_decref(object);
}

static void fuzz_answer(const char *bytes, size_t n)
{
    struct http_chunked chunked = {0};
    struct http_head head, cut;
    struct http_fault fault;
    long used = http_parse_answer(bytes, n, &head, &fault);

    if (used < 0 && (fault.status != 502 || !fault.message))
        abort();
    if (used <= 0)
        return;
    if (used > (long)n || head.status < 100 || head.status > 599 ||
        (head.chunked && head.content_length >= 0))
        abort();
    fuzz_whose(&head, bytes + used, n - (size_t)used);
    /* Nothing less is a whole head. */
    if (http_parse_answer(bytes, (size_t)used - 1, &cut, &fault) > 0)
        abort();
    for (size_t at = (size_t)used; head.chunked && at < n;) {
        struct http_piece piece;
        size_t some;
        int rc = http_chunked_next(&chunked, bytes + at, n - at, &some, &piece);

        if (rc)
            break;
        if (some == 0 || some > n - at)
            abort();
        at += some;
    }
}

/* Whether bytes may be JSON that jansson refuses: half a surrogate pair or a
 * NUL in an escape, or a whole number of more than 63 bits. */
static bool is_beyond_jansson(const char *bytes, size_t n)
{
    size_t digits = 0;

    for (size_t i = 0; i < n; i++) {
        digits = bytes[i] >= '0' && bytes[i] <= '9' ? digits + 1 : 0;
        if (digits > 17 ||
            (bytes[i] == '\\' && i + 1 < n && bytes[i + 1] == 'u'))
            return true;
    }
    return false;
}

/* What is written is what came, but for what is cut out and set. */
static void fuzz_write(const struct forward_body *body, const char *bytes,
                       size_t n, const struct forward_rules *rules)
{
    json_t *came = json_loadb(bytes, n, 0, NULL), *left;
    struct text_buf out;

    text_buf_init(&out, SIZE_MAX);
    forward_body_write(body, bytes, n, rules, &out);
    if (out.error || out.len > n + 64)
        abort();
    if (!forward_body_changes(body, rules) &&
        (out.len > n || memcmp(out.data, bytes + n - out.len, out.len) != 0))
        abort();
    left = json_loadb(out.data, out.len, 0, NULL);
    if (!left && !is_beyond_jansson(bytes, n)) /* strict for all parsers */
        abort();
    text_buf_fini(&out);
    if (came) {
        for (void *at = json_object_iter(came); at;) {
            const char *name = json_object_iter_key(at);

            at = json_object_iter_next(came, at);
            if (member_steers(member_find(name), rules->keyed))
                (void)json_object_del(came, name);
        }
        if (rules->cache_salt)
            (void)json_object_set_new(came, "cache_salt",
                                      json_string(rules->cache_salt));
        if (rules->priority)
            (void)json_object_set_new(came, "priority", json_integer(-7));
        if (!left || !json_equal(came, left))
            abort();
    }
    json_decref(came);
    json_decref(left);
}

static void fuzz_body(const char *path, const char *bytes, size_t size,
                      const struct forward_rules *rules)
{
    struct forward_body body;
    struct openai_error error;
    int rc = forward_body_read(forward_kind_of(http_text(path)), bytes, size,
                               rules, &body, &error);

    if (rc == -EINVAL && (error.http_status != 400 || !error.message[0]))
        abort();
    if (rc == 0 &&
        (strlen(body.model) >= FORWARD_MODEL_BYTES ||
         (body.n_words && !body.words) || body.n_words > size / 2 + 2 ||
         (body.n_hashes && !body.hashes) || body.n_hashes > size / 2 + 2))
        abort();
    if (rc == 0) {
        size_t n_question = 0;
        char *question = forward_tokenize_body(&body, &n_question);

        if (question && (n_question < 2 || question[n_question - 1] != '}'))
            abort();
        free(question);
        fuzz_write(&body, bytes, size, rules);
    }
    forward_body_fini(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = malloc(size + 1); /* so that reading beyond is seen */
    static const char *const paths[] = {
        "/v1/completions", "/v1/chat/completions", "/generate",
        "/v1/embeddings", FORWARD_SCHEDULE_PATH};
    const struct forward_rules all = {"a \"b", "-7", 0, true};
    uint32_t *tokens;
    size_t n_tokens;

    if (!bytes)
        return 0;
    if (size)
        memcpy(bytes, data, size);
    fuzz_answer(bytes, size);
    fuzz_models(bytes, size);
    fuzz_facts(bytes, size);
    fuzz_report(bytes, size, -1);
    fuzz_report(bytes, size, 1);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        fuzz_body(paths[i], bytes, size,
                  i % 2 ? &all : &(struct forward_rules){0});
    if (openai_tokens_read(bytes, size, &tokens, &n_tokens) == 0) {
        if (n_tokens > size)
            abort();
        free(tokens);
    }
    free(bytes);
    return 0;
}
