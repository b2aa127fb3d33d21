/* Which member of a body is the prompt, by the request's path; and the body of
 * /tokenize. */
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/forward/forward.h"

enum { MEMBER_MODEL, MEMBER_PROMPT, MEMBER_CHAT };
/* Members of a /tokenize body, in the order of forward_body.members. */
static const char *const members[FORWARD_MEMBERS] = {
    [MEMBER_MODEL] = "model", [MEMBER_PROMPT] = "prompt", /* or messages */
    [MEMBER_CHAT] = "tools", /* from here on only of chats */
    "chat_template",          "chat_template_kwargs",
    "add_generation_prompt",  "continue_final_message",
    "mm_processor_kwargs",    "add_special_tokens", /* of both */
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

const struct forward_kind *forward_kind_of(const char *path, size_t n)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strlen(kinds[i].path) == n && memcmp(kinds[i].path, path, n) == 0)
            return &kinds[i];
    return NULL;
}

int forward_member(const struct forward_kind *kind, const char *name)
{
    if (!kind || !kind->text)
        return -1;
    if (strcmp(name, kind->text) == 0)
        return MEMBER_PROMPT;
    for (int i = 0; i < FORWARD_MEMBERS; i++)
        if (i != MEMBER_PROMPT && strcmp(name, members[i]) == 0)
            return kind->chat || i < MEMBER_CHAT || i == FORWARD_MEMBERS - 1
                       ? i
                       : -1;
    return -1;
}

char *forward_tokenize_body(const struct forward_body *body, size_t *n)
{
    const struct forward_kind *kind = body->kind;
    const struct forward_slice *text = &body->members[MEMBER_PROMPT];
    size_t room = 4;
    char *all, *at;

    if (text->n < 2 || *text->at != (kind->chat ? '[' : '"'))
        return NULL;
    for (size_t i = 0; i < FORWARD_MEMBERS; i++)
        room += body->members[i].n + strlen(members[i]) + 8;
    at = all = malloc(room);
    if (!all)
        return NULL;
    for (size_t i = 0; i < FORWARD_MEMBERS; i++) {
        const struct forward_slice *v = &body->members[i];

        if (v->n == 0)
            continue;
        at = stpcpy(at, at == all ? "{\"" : ",\"");
        at = stpcpy(at,
                    i == MEMBER_PROMPT && kind->chat ? "messages" : members[i]);
        at = stpcpy(at, "\":");
        memcpy(at, v->at, v->n);
        at += v->n;
    }
    *at++ = '}';
    *n = (size_t)(at - all);
    return all;
}
