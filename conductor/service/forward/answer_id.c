/* See answer_id.h. */
#include "conductor/service/forward/answer_id.h"

#include <string.h>

static void keep(struct answer_id *a, char c)
{
    if (a->n < ANSWER_ID_MAX)
        a->text[a->n] = c;
    if (a->n <= ANSWER_ID_MAX)
        a->n++;
}

static bool is_text(const struct answer_id *a, const char *text)
{
    return a->n == strlen(text) && memcmp(a->text, text, a->n) == 0;
}

/* A member's name or a text that is its value. Returns whether it is the id. */
static bool end_text(struct answer_id *a)
{
    if (a->depth != a->level)
        return false;
    if (a->in_value) {
        a->over = a->member == ANSWER_ID_ID;
        return a->over && a->n > 0 && a->n <= ANSWER_ID_MAX;
    }
    a->member = is_text(a, "id")         ? ANSWER_ID_ID
                : is_text(a, "response") ? ANSWER_ID_RESPONSE
                                         : ANSWER_ID_OTHER;
    return false;
}

/* Goes on with a byte of a text. Returns as end_text(). */
static bool read_text(struct answer_id *a, char c)
{
    bool ends = c == '"' && !a->escaped;

    a->escaped = c == '\\' && !a->escaped;
    a->in_text = !ends;
    if (ends)
        return end_text(a);
    keep(a, c);
    return false;
}

static void open_bracket(struct answer_id *a, char c)
{
    bool is_read =
        c == '{' && (a->depth == 0 || (a->depth == 1 && a->level == 1 &&
                                       a->member == ANSWER_ID_RESPONSE));

    if (a->depth == 0 && !is_read) /* of what stands before an event's data */
        return;
    a->depth++;
    if (!is_read)
        return;
    a->level = a->depth;
    a->in_value = false;
}

static void close_bracket(struct answer_id *a)
{
    if (a->depth == 0)
        return;
    a->depth--;
    a->over = a->depth == 0;
    if (a->level > a->depth) {
        a->level = a->depth;
        a->in_value = true;
    }
}

static void read_mark(struct answer_id *a, char c)
{
    switch (c) {
    case '"':
        a->in_text = a->depth > 0;
        a->n = 0;
        break;
    case '{':
    case '[':
        open_bracket(a, c);
        break;
    case '}':
    case ']':
        close_bracket(a);
        break;
    case ':':
    case ',':
        if (a->depth == a->level)
            a->in_value = c == ':';
        break;
    default:
        break;
    }
}

bool answer_id_read(struct answer_id *a, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !a->over; i++)
        if (!a->in_text)
            read_mark(a, bytes[i]);
        else if (read_text(a, bytes[i]))
            return true;
    return false;
}
