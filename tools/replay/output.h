/* A file that is written while work goes on, and appears only when the work has
 * succeeded: until then what was there before stays. */
#ifndef TOOLS_REPLAY_OUTPUT_H
#define TOOLS_REPLAY_OUTPUT_H

#include <stdio.h>

#define REPLAY_OUTPUT_PATH_BYTES 4096

struct replay_output {
    char path[REPLAY_OUTPUT_PATH_BYTES];
    char temporary[REPLAY_OUTPUT_PATH_BYTES + 32]; /* "": written in place */
    FILE *file;                                    /* NULL: nothing is open */
};

/*
 * Begins a file beside `path`; something else than a regular file (a pipe,
 * /dev/stdout) is opened itself. Returns 0, or a negative errno with
 * output->file NULL.
 */
int replay_output_open(struct replay_output *output, const char *path)
    __attribute__((warn_unused_result));

/* Ends it: with `keep` it takes the path's place, else it is removed. Nothing
 * if nothing is open. Returns 0 or a negative errno; it is closed anyway. */
int replay_output_close(struct replay_output *output, int keep)
    __attribute__((warn_unused_result));

#endif
