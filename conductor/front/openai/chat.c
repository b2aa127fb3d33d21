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

__attribute__((format(printf, 3, 4))) static int
refuse(struct openai_error *error, size_t index, const char *format, ...)
{
    char what[256];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return openai_error_set(error, 400, "invalid_value", "messages",
                            "messages[%zu]%s", index, what);
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
static int check_members(const json_t *message, bool is_assistant, size_t index,
                         struct openai_error *error)
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
        return refuse(error, index,
                      ".%.60s: %s: not supported: a message has a role and a "
                      "content",
                      key, openai_show(value, shown));
    }
    return 0;
}

static int add_text(const struct json_scan *scan, size_t *next,
                    struct text_buf *out)
{
    const struct json_span *span = &scan->spans[*next];

    if (*next >= scan->n_spans)
        return -EINVAL;
    text_buf_add(out, scan->bytes + span->start, span->count);
    ++*next;
    return 0;
}

static int add_parts(const json_t *parts, const struct json_scan *scan,
                     size_t index, size_t *next, struct text_buf *out,
                     struct openai_error *error)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *type = json_object_get(part, "type");
        const char *text = json_string_value(type);
        char shown[OPENAI_SHOWN_BYTES];

        if (!text || strcmp(text, "text") != 0)
            return refuse(error, index,
                          ".content[%zu].type: %s: must be \"text\"", i,
                          openai_show(type, shown));
        if (!json_is_true(json_object_get(part, "text")) ||
            add_text(scan, next, out))
            return refuse(error, index,
                          ".content[%zu].text: missing: must be a string", i);
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

static int add_message(const json_t *message, const struct json_scan *scan,
                       size_t index, size_t *next, struct text_buf *out,
                       struct openai_error *error)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    char shown[OPENAI_SHOWN_BYTES];
    bool is_assistant;
    int rc = 0;

    if (!json_is_object(message))
        return refuse(error, index, ": %s: must be an object",
                      openai_show(message, shown));
    if (!role || !is_role(role))
        return refuse(
            error, index,
            ".role: %s: must be system, developer, user, assistant or tool",
            openai_show(json_object_get(message, "role"), shown));
    is_assistant = strcmp(role, "assistant") == 0;
    rc = check_members(message, is_assistant, index, error);
    if (rc)
        return rc;
    text_buf_printf(out, "<|%s|>\n", role);
    if ((!content || json_is_null(content)) && is_assistant)
        rc = 0; /* an answer without text that a client sends back */
    else if (json_is_array(content))
        rc = add_parts(content, scan, index, next, out, error);
    else if (!json_is_true(content) || add_text(scan, next, out))
        rc = refuse(error, index,
                    ".content: %s: must be a string or an array of parts",
                    openai_show(content, shown));
    if (rc == 0)
        rc = add_calls(json_object_get(message, "tool_calls"), out);
    text_buf_puts(out, "\n");
    return rc;
}

int openai_chat_prompt(const json_t *messages, const struct json_scan *scan,
                       struct text_buf *out, struct openai_error *error)
{
    char shown[OPENAI_SHOWN_BYTES];
    size_t next = 0;
    int rc;

    if (!json_is_array(messages))
        return openai_error_set(error, 400, "invalid_value", "messages",
                                "messages: %s: must be an array of messages",
                                openai_show(messages, shown));
    if (json_array_size(messages) == 0)
        return openai_error_set(error, 400, "invalid_value", "messages",
                                "messages: []: must not be empty");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        rc = add_message(json_array_get(messages, i), scan, i, &next, out,
                         error);
        if (rc)
            return rc;
    }
    text_buf_puts(out, "<|assistant|>\n");
    return out->error ? -ENOMEM : 0;
}
