/* The members of a question, with their kinds and limits. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "conductor/front/gateway/question_reader.h"

#define ASKS (QUESTION_TOKENS | QUESTION_HASHES)
#define CHANGES (QUESTION_REGISTER | QUESTION_UNREGISTER)
#define ALL (ASKS | CHANGES)
#define AT(field) offsetof(struct question, field)
#define SHOWN_BYTES_MAX 40 /* of a value, in a message */

static const struct question_member members[] = {
    {"model", KIND_TEXT, ALL, AT(model), 0, 0},
    {"model_name", KIND_TEXT, ALL, AT(model), 0, 0},
    {"modelname", KIND_TEXT, ALL, AT(model), 0, 0},
    {"token_ids", KIND_TOKENS, QUESTION_TOKENS, 0, 0, 0},
    {"seq_hashes", KIND_HASHES, QUESTION_HASHES, 0, 0, 0},
    {"block_hash", KIND_HASHES, QUESTION_HASHES, 0, 0, 0},
    {"block_hashes", KIND_HASHES, QUESTION_HASHES, 0, 0, 0},
    {"block_size", KIND_NUMBER, ALL, AT(block_tokens), 1, 1024},
    {"lora_name", KIND_TEXT, ALL, AT(adapter), 0, 0},
    {"lora_id", KIND_NAME, ASKS, AT(adapter_id), 0, 0},
    {"tenant_id", KIND_TEXT, ALL, AT(tenant), 0, 0},
    {"routing_group", KIND_TEXT, ALL, AT(tenant), 0, 0},
    {"instance_id", KIND_NAME, ALL, AT(instance), 0, 0},
    {"cache_salt", KIND_TEXT, ASKS, AT(salt), 0, 0},
    {"additional_salt", KIND_TEXT, ASKS | QUESTION_REGISTER, AT(salt), 0, 0},
    {"additionalsalt", KIND_TEXT, ASKS | QUESTION_REGISTER, AT(salt), 0, 0},
    {"endpoint", KIND_TEXT, QUESTION_REGISTER, AT(endpoint), 0, 0},
    {"replay_endpoint", KIND_TEXT, QUESTION_REGISTER, AT(replay), 0, 0},
    {"type", KIND_TEXT, CHANGES, AT(type), 0, 0},
    {"url", KIND_TEXT, QUESTION_REGISTER, AT(url), 0, 0},
    {"dp_rank", KIND_NUMBER, CHANGES, AT(rank), 0, 255},
    {"hash_profile", KIND_IGNORED, QUESTION_REGISTER, 0, 0, 0},
    {"cache_group", KIND_IGNORED, CHANGES, 0, 0, 0},
};

int question_refuse(struct question_reader *r, const char *reason,
                    const char *name, const char *why)
{
    r->failed = true;
    openai_error_set(r->error, 400, reason, name, "%s: %s", name, why);
    return -EINVAL;
}

/* Returns what a value must be, in words; static. */
static const char *must_be(enum question_kind kind)
{
    static const char *const texts[] = {
        [KIND_TEXT] = "must be a text of at most 255 bytes without NUL",
        [KIND_NAME] = "must be a text of at most 255 bytes, or a whole number",
        [KIND_NUMBER] = "must be a whole number",
        [KIND_TOKENS] = "must be an array of token ids from 0 to 4294967295",
        [KIND_HASHES] = "must be an array of whole numbers of 64 bits",
        [KIND_IGNORED] = "",
    };

    return texts[kind];
}

int question_refuse_type(struct question_reader *r,
                         const struct question_member *m, int64_t i,
                         const char *value, size_t n)
{
    char text[SHOWN_BYTES_MAX + 1], at[24] = "";
    size_t shown = n < SHOWN_BYTES_MAX ? n : SHOWN_BYTES_MAX;

    for (size_t k = 0; k < shown; k++)
        text[k] = (char)(value[k] >= ' ' && value[k] <= '~' ? value[k] : '?');
    text[shown] = '\0';
    if (i >= 0)
        snprintf(at, sizeof(at), "[%" PRId64 "]", i);
    r->failed = true;
    openai_error_set(r->error, 400, "invalid_type", m->name, "%s%s: %s%s: %s",
                     m->name, at, text, shown < n ? ".." : "",
                     must_be(m->kind));
    return -EINVAL;
}

const struct question_member *question_member(struct question_reader *r,
                                              const char *name)
{
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const struct question_member *m = &members[i];

        if (strcmp(name, m->name) != 0 || !(m->paths & r->path))
            continue;
        if (r->seen & UINT64_C(1) << i) {
            question_refuse(r, "invalid_value", m->name, "comes twice");
            return NULL;
        }
        r->seen |= UINT64_C(1) << i;
        return m;
    }
    question_refuse(r, "unknown_field", name, "is unknown");
    return NULL;
}

char *question_text(struct question_reader *r, const struct question_member *m)
{
    return (char *)r->out + m->at;
}

static int refuse_text(struct question_reader *r,
                       const struct question_member *m, const char *text,
                       size_t n)
{
    char quoted[SHOWN_BYTES_MAX + 8];
    int shown = n < SHOWN_BYTES_MAX - 2 ? (int)n : SHOWN_BYTES_MAX - 2;

    snprintf(quoted, sizeof(quoted), "\"%.*s\"%s", shown, text,
             (size_t)shown < n ? ".." : "");
    return question_refuse_type(r, m, -1, quoted, strlen(quoted));
}

int question_take_text(struct question_reader *r,
                       const struct question_member *m, const char *text,
                       size_t n)
{
    if ((m->kind != KIND_TEXT && m->kind != KIND_NAME) ||
        n >= QUESTION_TEXT_BYTES || memchr(text, '\0', n))
        return refuse_text(r, m, text, n);
    memcpy(question_text(r, m), text, n);
    question_text(r, m)[n] = '\0';
    return 0;
}

int question_take_number(struct question_reader *r,
                         const struct question_member *m, int64_t n)
{
    char why[64];

    if (m->kind == KIND_NAME) {
        snprintf(question_text(r, m), QUESTION_TEXT_BYTES, "%" PRId64, n);
        return 0;
    }
    if (m->kind != KIND_NUMBER)
        return question_refuse_type(
            r, m, -1, why, (size_t)snprintf(why, sizeof(why), "%" PRId64, n));
    if (n < m->least || n > m->most) {
        snprintf(why, sizeof(why),
                 "%" PRId64 ": must be from %" PRId64 " to %" PRId64, n,
                 m->least, m->most);
        return question_refuse(r, "out_of_range", m->name, why);
    }
    memcpy((char *)r->out + m->at, &n, sizeof(n));
    return 0;
}
