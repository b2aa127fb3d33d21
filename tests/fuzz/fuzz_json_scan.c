/* Any bytes as a body: what the scanner takes must be what jansson reads. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/json/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct json_scan *s, const char *body, size_t n)
{
    json_t *rest = json_loadb(s->rest, s->rest_bytes,
                              JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    json_t *tree, *prompt;

    if (!rest)
        return;
    tree = json_loadb(body, n, JSON_ALLOW_NUL, NULL);
    if (!tree)
        abort(); /* both halves are sound, so the whole is */
    prompt = json_object_get(tree, "prompt");
    if (s->form == JSON_FORM_IDS &&
        json_array_size(prompt) != s->spans[s->n_spans - 1].count)
        abort();
    if (s->form == JSON_FORM_TEXT &&
        (json_string_length(prompt) != s->spans[s->n_spans - 1].count ||
         memcmp(json_string_value(prompt),
                s->bytes + s->spans[s->n_spans - 1].start,
                json_string_length(prompt)) != 0))
        abort();
    json_decref(tree);
    json_decref(rest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct json_scan_limits limits = {16, 4096, 16, 2048, 0};
    enum json_scan_kind kind =
        size && data[0] & 1 ? JSON_SCAN_PROMPT : JSON_SCAN_MESSAGES;
    struct json_scan s;
    char *body;

    if (size == 0)
        return 0;
    body = malloc(size - 1 ? size - 1 : 1); /* exact, for ASan */
    memcpy(body, data + 1, size - 1);
    if (json_scan(body, size - 1, kind, &limits, &s) == 0)
        check(&s, body, size - 1);
    json_scan_fini(&s);
    free(body);
    return 0;
}
