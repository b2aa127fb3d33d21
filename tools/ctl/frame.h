/* The screen of conductorctl top: lines of text from the answers to
 * /admin/overview and /admin/instances. */
#ifndef TOOLS_CTL_FRAME_H
#define TOOLS_CTL_FRAME_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_COLUMNS_MAX 200
#define FRAME_LINES_MAX 300
#define FRAME_HEAD_LINES 12 /* above the instances, column titles included */

/* The conductor's last answers. */
struct frame_facts {
    const char *where;                  /* HOST:PORT */
    const json_t *overview, *instances; /* NULL = no answer yet */
    const char *trouble; /* error of the last question; "" = none */
    /* Bytes per second since the previous answer; below 0 = unknown. */
    double fetched_per_s, disk_per_s;
};

/* Lines without control characters, each at most `columns` bytes and a NUL. */
struct frame {
    size_t columns, n;
    char lines[FRAME_LINES_MAX][FRAME_COLUMNS_MAX + 1];
};

/*
 * Fills at most `lines` lines of `columns` bytes (both are limited by the
 * bounds above). *from: index of the first instance shown; reduced so that no
 * line stays empty while there are instances above.
 */
void frame_make(struct frame *frame, const struct frame_facts *facts,
                size_t lines, size_t columns, size_t *from);

#endif
