/* Writes the engine's body where members are cut out or set. */
#include <string.h>

#include "conductor/front/openai/body/body.h"

static bool sets(const char *value)
{
    return value && *value;
}

bool forward_body_changes(const struct forward_body *body,
                          const struct forward_rules *rules)
{
    return body->n_cuts > 0 || sets(rules->cache_salt) || sets(rules->priority);
}

void forward_body_write(const struct forward_body *read, const char *body,
                        size_t n, const struct forward_rules *rules,
                        struct text_buf *out)
{
    const char *at = (const char *)memchr(body, '{', n) + 1, *end = body + n;
    size_t before = out->len;

    (void)!text_buf_reserve(out, n + 8); /* its error stays in out */
    text_buf_puts(out, "{");
    if (sets(rules->cache_salt)) {
        text_buf_puts(out, read->kind && read->kind->sglang
                               ? "\"extra_key\":"
                               : "\"cache_salt\":");
        text_buf_json_str(out, rules->cache_salt);
    }
    if (sets(rules->priority)) {
        text_buf_puts(out, out->len > before + 1 ? "," : "");
        text_buf_puts(out, "\"priority\":");
        text_buf_puts(out, rules->priority);
    }
    if (out->len > before + 1 && read->keeps)
        text_buf_puts(out, ",");
    for (size_t i = 0; i < read->n_cuts; i++) {
        text_buf_add(out, at, (size_t)(read->cuts[i].at - at));
        at = read->cuts[i].at + read->cuts[i].n;
    }
    text_buf_add(out, at, (size_t)(end - at));
}
