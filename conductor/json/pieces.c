/* See pieces.h. */
#include "conductor/json/pieces.h"

#include <string.h>

static void keep(struct json_pieces *s, char c)
{
    if (s->n < JSON_PIECES_VALUE)
        s->value[s->n] = c;
    s->n += s->n <= JSON_PIECES_VALUE;
}

static bool is_read(const struct json_pieces *s)
{
    return s->depth > 0 && s->depth <= JSON_PIECES_LEVELS;
}

/* Whether the text that begins or ends here is a member's name. */
static bool at_name(const struct json_pieces *s)
{
    return is_read(s) && s->is_object[s->depth - 1] && !s->behind_name;
}

static void set_name(struct json_pieces *s)
{
    char *name = s->names[s->depth - 1];
    size_t n = s->n < JSON_PIECES_NAME ? s->n : 0;

    memcpy(name, s->value, n);
    name[n] = '\0';
}

/* Reads one byte of a text. Returns whether the text ended and is a value. */
static bool read_text(struct json_pieces *s, char c)
{
    bool ends = c == '"' && !s->escaped;

    s->escaped = c == '\\' && !s->escaped;
    s->in_text = !ends;
    if (!ends) {
        keep(s, c);
        return false;
    }
    if (at_name(s)) {
        set_name(s);
        return false;
    }
    return is_read(s);
}

static void open_bracket(struct json_pieces *s, char c)
{
    s->depth++;
    s->behind_name = false;
    if (!is_read(s))
        return;
    s->is_object[s->depth - 1] = c == '{';
    *s->names[s->depth - 1] = '\0';
}

/* Returns whether the caller gets it. */
static bool close_bracket(struct json_pieces *s)
{
    bool told = is_read(s);

    s->depth -= s->depth > 0;
    s->behind_name = true; /* until the comma */
    return told;
}

/* Reads one byte that belongs to no text and no word. */
static enum json_piece read_mark(struct json_pieces *s, char c)
{
    switch (c) {
    case '{':
    case '[':
        open_bracket(s, c);
        break;
    case '}':
    case ']':
        return close_bracket(s) ? JSON_PIECE_END : JSON_PIECE_MORE;
    case ':':
    case ',':
        s->behind_name = c == ':';
        break;
    case '"':
        s->in_text = s->is_text = s->depth > 0;
        s->n = 0;
        break;
    case ' ':
    case '\t':
    case '\r':
    case '\n':
        break;
    default:
        s->in_word = is_read(s);
        s->is_text = false;
        s->n = 0;
        keep(s, c);
        break;
    }
    return JSON_PIECE_MORE;
}

enum json_piece json_pieces_next(struct json_pieces *s, const char **at,
                                 const char *end)
{
    enum json_piece what = JSON_PIECE_MORE;

    for (; *at < end && what == JSON_PIECE_MORE; ++*at) {
        char c = **at;

        if (s->in_text) {
            what = read_text(s, c) ? JSON_PIECE_VALUE : JSON_PIECE_MORE;
        } else if (!s->in_word) {
            what = read_mark(s, c);
        } else if (strchr(" \t\r\n,:{}[]\"", c)) {
            s->in_word = false; /* c is read again */
            return JSON_PIECE_VALUE;
        } else {
            keep(s, c);
        }
    }
    return what;
}

bool json_pieces_is(const struct json_pieces *s, uint64_t depth,
                    const char *name)
{
    return depth > 0 && depth <= s->depth && depth <= JSON_PIECES_LEVELS &&
           strcmp(s->names[depth - 1], name) == 0;
}
