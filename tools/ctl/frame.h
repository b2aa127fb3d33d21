/* What conductorctl top shows: lines of text, made of the answers to
 * /admin/overview and /admin/instances. */
#ifndef TOOLS_CTL_FRAME_H
#define TOOLS_CTL_FRAME_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_COLUMNS_MAX 200
#define FRAME_LINES_MAX 300
#define FRAME_HEAD_LINES 10 /* above the instances, their titles too */

/* What was heard of the conductor. */
struct frame_facts {
    const char *where;                  /* HOST:PORT */
    const json_t *overview, *instances; /* NULL: nothing was heard */
    const char *trouble; /* why the last question had no answer; "": it had */
    /* Bytes a second since the answer before; below 0: not known. */
    double fetched_per_s, disk_per_s;
};

/* Lines without control characters, each at most `columns` bytes and a NUL. */
struct frame {
    size_t columns, n;
    char lines[FRAME_LINES_MAX][FRAME_COLUMNS_MAX + 1];
};

/*
 * Fills at most `lines` lines of `columns` bytes (both are cut to the bounds
 * above). The instances begin with the one at *from, which is cut so that no
 * line is empty while there are instances above.
 */
void frame_make(struct frame *frame, const struct frame_facts *facts,
                size_t lines, size_t columns, size_t *from);

#endif
