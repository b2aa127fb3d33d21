/*
 * The chat template: messages -> the bytes of one prompt. Texts come from the
 * scan in document order, so the n-th text that the walk over the messages
 * meets is span n.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "conductor/front/openai/params.h"

static const char *const roles[] = {"system", "developer", "user", "assistant",
                                    "tool"};

/* The template being filled in. */
struct chat {
    const struct json_scan *scan;
    size_t next;  /* span of the next text */
    size_t index; /* of the message */
    struct text_buf *out;
    struct openai_error *error;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct chat *c,
                                                        const char *format, ...)
{
    char what[256];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return openai_error_set(c->error, 400, "invalid_value", "messages",
                            "messages[%zu]%s", c->index, what);
}

static bool is_role(const char *role)
{
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(role, roles[i]) == 0)
            return true;
    return false;
}

/* Whether the template has no place for a member's text. */
static bool is_ignored(const char *key)
{
    return strcmp(key, "name") == 0 || strcmp(key, "tool_call_id") == 0 ||
           strcmp(key, "reasoning_content") == 0;
}

/* Refuses members that a text cannot stand for. */
static int check_members(const struct chat *c, const json_t *message,
                         bool is_assistant)
{
    char shown[OPENAI_SHOWN_BYTES];
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)message, key, value)
    {
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0 ||
            (is_ignored(key) && json_is_string(value)) ||
            (is_assistant && strcmp(key, "tool_calls") == 0 &&
             json_is_array(value)))
            continue;
        if (json_is_null(value) ||
            (json_is_array(value) && json_array_size(value) == 0))
            continue;
        return refuse(c,
                      ".%.60s: %s: not supported: a message has a role and a "
                      "content",
                      key, openai_show(value, shown));
    }
    return 0;
}

static int add_text(struct chat *c)
{
    const struct json_span *span = &c->scan->spans[c->next];

    if (c->next >= c->scan->n_spans)
        return -EINVAL;
    text_buf_add(c->out, c->scan->bytes + span->start, span->count);
    c->next++;
    return 0;
}

static int add_parts(struct chat *c, const json_t *parts)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *type = json_object_get(part, "type");
        const char *text = json_string_value(type);
        char shown[OPENAI_SHOWN_BYTES];

        if (!text || strcmp(text, "text") != 0)
            return refuse(c, ".content[%zu].type: %s: must be \"text\"", i,
                          openai_show(type, shown));
        if (!json_is_true(json_object_get(part, "text")) || add_text(c))
            return refuse(c, ".content[%zu].text: missing: must be a string",
                          i);
    }
    return 0;
}

static int add_bytes(const char *bytes, size_t n, void *out)
{
    text_buf_add(out, bytes, n);
    return 0;
}

/* Appends the tools that an answer called, as JSON. */
static int add_calls(const json_t *calls, struct text_buf *out)
{
    if (json_array_size(calls) == 0)
        return 0;
    return json_dump_callback(calls, add_bytes, out, JSON_COMPACT) ? -ENOMEM
                                                                   : 0;
}

static int add_message(struct chat *c, const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    char shown[OPENAI_SHOWN_BYTES];
    bool is_assistant;
    int rc = 0;

    if (!json_is_object(message))
        return refuse(c, ": %s: must be an object",
                      openai_show(message, shown));
    if (!role || !is_role(role))
        return refuse(
            c, ".role: %s: must be system, developer, user, assistant or tool",
            openai_show(json_object_get(message, "role"), shown));
    is_assistant = strcmp(role, "assistant") == 0;
    rc = check_members(c, message, is_assistant);
    if (rc)
        return rc;
    text_buf_printf(c->out, "<|%s|>\n", role);
    if ((!content || json_is_null(content)) && is_assistant)
        rc = 0; /* an answer without text that a client sends back */
    else if (json_is_array(content))
        rc = add_parts(c, content);
    else if (!json_is_true(content) || add_text(c))
        rc = refuse(c, ".content: %s: must be a string or an array of parts",
                    openai_show(content, shown));
    if (rc == 0)
        rc = add_calls(json_object_get(message, "tool_calls"), c->out);
    text_buf_puts(c->out, "\n");
    return rc;
}

int openai_chat_prompt(const json_t *messages, const struct json_scan *scan,
                       struct text_buf *out, struct openai_error *error)
{
    struct chat c = {.scan = scan, .out = out, .error = error};
    char shown[OPENAI_SHOWN_BYTES];

    if (!json_is_array(messages))
        return openai_error_set(error, 400, "invalid_value", "messages",
                                "messages: %s: must be an array of messages",
                                openai_show(messages, shown));
    if (json_array_size(messages) == 0)
        return openai_error_set(error, 400, "invalid_value", "messages",
                                "messages: []: must not be empty");
    for (; c.index < json_array_size(messages); c.index++) {
        int rc = add_message(&c, json_array_get(messages, c.index));

        if (rc)
            return rc;
    }
    text_buf_puts(out, "<|assistant|>\n");
    return out->error ? -ENOMEM : 0;
}
