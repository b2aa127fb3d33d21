/* Writes requests in the paper's format, one line each. */
#ifndef TRACES_WRITER_H
#define TRACES_WRITER_H

#include <stdio.h>

#include "traces/trace.h"

/*
 * Appends one line to `file` (borrowed); arrival_us is rounded down to
 * milliseconds. Returns 0 or -EIO. O(blocks).
 */
[[nodiscard]] int trace_write(FILE *file, const struct trace_request *request);

#endif
