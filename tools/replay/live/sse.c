/* See sse.h. The buffer holds: data of this event | unfinished line. */
#include "tools/replay/live/sse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int append(struct sse_parser *p, char c)
{
    size_t used = p->data_bytes + p->line_bytes;

    if (used + 2 > SSE_EVENT_BYTES_MAX)
        return -EMSGSIZE;
    if (array_reserve(p->buffer, p->capacity, used + 2))
        return -ENOMEM;
    p->buffer[used] = c;
    p->line_bytes++;
    return 0;
}

/* Appends the value of a finished `data` line to the event's data. */
static void take_line(struct sse_parser *p)
{
    char *line = p->buffer + p->data_bytes;
    size_t n = p->line_bytes;

    p->line_bytes = 0;
    if (n < 4 || memcmp(line, "data", 4) != 0 || (n > 4 && line[4] != ':'))
        return;
    size_t skip = n > 4 ? 5 : 4;
    skip += n > 5 && line[5] == ' ' ? 1 : 0;
    /* There is room: "data" is longer than the newline that joins two lines. */
    if (p->has_data)
        p->buffer[p->data_bytes++] = '\n';
    memmove(p->buffer + p->data_bytes, line + skip, n - skip);
    p->data_bytes += n - skip;
    p->has_data = true;
}

static void end_line(struct sse_parser *p, sse_event_cb *cb, void *arg)
{
    if (p->line_bytes > 0) {
        take_line(p);
        return;
    }
    if (p->has_data) {
        p->buffer[p->data_bytes] = '\0';
        cb(arg, p->buffer, p->data_bytes);
    }
    p->data_bytes = 0;
    p->has_data = false;
}

int sse_feed(struct sse_parser *parser, const char *bytes, size_t count,
             sse_event_cb *cb, void *arg)
{
    for (size_t i = 0; i < count; i++) {
        char c = bytes[i];

        if (c == '\n' && parser->after_cr) {
            parser->after_cr = false;
            continue;
        }
        parser->after_cr = c == '\r';
        if (c == '\r' || c == '\n') {
            end_line(parser, cb, arg);
            continue;
        }
        int rc = append(parser, c);
        if (rc != 0)
            return rc;
    }
    return 0;
}

void sse_fini(struct sse_parser *parser)
{
    free(parser->buffer);
    *parser = (struct sse_parser){0};
}
