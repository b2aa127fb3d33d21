/* Pictures: C writes the numbers, draw.py beside this file draws them. */
#ifndef TOOLS_PLOT_PLOT_H
#define TOOLS_PLOT_PLOT_H

#include <limits.h>
#include <stdio.h>

/* A picture in the making. The caller writes the picture's data to `file`, or
 * passes `data` to functions that write to a path: they append to `file`. */
struct plot {
    FILE *file;    /* owned; NULL = it could not be opened */
    char data[24]; /* "/dev/fd/N" of the file, for result_open() */
};

/* Opens a temporary file for the data. Returns 0 or a negative errno; call
 * plot_end() in either case. */
[[nodiscard]] int plot_begin(struct plot *plot);

/*
 * Draws the data as SVG to `path`, if rc is 0, and closes the file. `kind` is
 * the name of a function of draw.py; `title` may hold any characters. Returns
 * rc unless it is 0; then 0; -ENOPKG when Python or matplotlib is missing;
 * -EPROTO when drawing failed (the script printed why); or a negative errno.
 * On an error the file is unchanged, unless writing it failed. Waits for
 * Python: about 1 s.
 */
[[nodiscard]] int plot_end(struct plot *plot, int rc, const char *kind,
                           const char *title, const char *path);

/* Returns what an error of plot_end() means, and what to do. */
const char *plot_error(int rc);

/* Finds the script `name` of this folder: beside the running program in the
 * build folder or, installed, in ../libexec. Writes the paths of that program
 * and of the script; if neither place has it, that of the second place. */
void plot_find(const char *name, char program[PATH_MAX],
               char script[PATH_MAX + 64]);

#endif
