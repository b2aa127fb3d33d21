/* Finds the member of a body that is the prompt, by the request's path; makes
 * the body of /tokenize. */
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/body/body.h"
#include "conductor/front/openai/body/member.h"

#define SPARE_BYTES 512 /* of a /tokenize body, beside its prompt; usual */

enum { PART_MODEL, PART_PROMPT, PART_CHAT };
/* Members of a /tokenize body, in the order of forward_body.parts. */
static const char *const parts[FORWARD_PARTS] = {
    [PART_MODEL] = "model",  [PART_PROMPT] = "prompt", /* or messages */
    [PART_CHAT] = "tools", /* from here on only of chats */
    "chat_template",         "chat_template_kwargs",
    "add_generation_prompt", "continue_final_message",
    "mm_processor_kwargs",   "add_special_tokens", /* of both */
};

static const struct forward_kind kinds[] = {
    {"/v1/chat/completions", {"messages"}, "messages", true, true, false},
    {"/v1/completions", {"prompt"}, "prompt", false, true, false},
    {FORWARD_SCHEDULE_PATH,
     {"prompt", "token_ids", "input_ids", "text"},
     "prompt", /* chats are read as such */
     false,
     true,
     false},
    /* llama.cpp's */
    {"/chat/completions", {"messages"}, "messages", true, true, false},
    {"/completions", {"prompt"}, "prompt", false, true, false},
    {"/completion", {"prompt"}, "prompt", false, false, false},
    /* of both kinds */
    {"/invocations", {"messages", "prompt"}, NULL, false, false, false},
    {"/v1/responses", {"input"}, NULL, false, false, false},
    {"/responses", {"input"}, NULL, false, false, false},
    {"/v1/messages", {"messages"}, NULL, false, false, false}, /* Anthropic's */
    /* SGLang's */
    {"/generate", {"input_ids", "text"}, "text", false, false, true},
    /* vLLM's */
    {"/inference/v1/generate", {"token_ids"}, NULL, false, false, false},
};

const struct forward_kind *forward_kind_of(struct http_slice path)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (http_is(path, kinds[i].path))
            return &kinds[i];
    return NULL;
}

struct http_slice *forward_part(struct forward_body *body,
                                const struct member *m)
{
    const struct forward_kind *kind = body->kind;

    if (!kind || !kind->text)
        return NULL;
    if (strcmp(m->name, kind->text) == 0)
        return &body->parts[PART_PROMPT];
    return m->part && (kind->chat || m->part <= PART_CHAT ||
                       m->part == FORWARD_PARTS)
               ? &body->parts[m->part - 1]
               : NULL;
}

char *forward_tokenize_body(const struct forward_body *body, size_t *n)
{
    const struct forward_kind *kind = body->kind;
    const struct http_slice *text = &body->parts[PART_PROMPT];
    struct text_buf out;

    if (text->n < 2 || *text->at != (kind->chat ? '[' : '"'))
        return NULL;
    text_buf_init(&out, SIZE_MAX);
    (void)!text_buf_reserve(&out, text->n + SPARE_BYTES); /* or out.error */
    for (size_t i = 0; i < FORWARD_PARTS; i++) {
        const struct http_slice *v = &body->parts[i];

        if (v->n == 0)
            continue;
        text_buf_puts(&out, out.len ? ",\"" : "{\"");
        text_buf_puts(&out,
                      i == PART_PROMPT && kind->chat ? "messages" : parts[i]);
        text_buf_puts(&out, "\":");
        text_buf_add(&out, v->at, v->n);
    }
    text_buf_puts(&out, "}");
    *n = out.len;
    if (out.error)
        text_buf_fini(&out);
    return out.data;
}
