/*
 * One line of a trace to one request. Pure. This is a strict scanner of its
 * own: a general parser spends most of its time on a JSON node for each block
 * id, and the simulator reads millions of them.
 */
#ifndef TRACES_SCAN_H
#define TRACES_SCAN_H

#include <stddef.h>

#include "traces/trace.h"

/*
 * Reads the JSON object in line[0 .. bytes) (no newline needed) into
 * `request`, whose room for ids is reused and grown. The four fields may come
 * in any order, each once; they are non-negative integers. Other fields are
 * skipped if they are numbers, strings, true, false or null.
 * Checks the line alone; what must hold between lines is trace_reader's.
 * Returns 0; -EINVAL with `error` filled (its line left alone) and the request
 * valid but meaningless; or -ENOMEM. O(bytes).
 */
[[nodiscard]] int trace_scan_line(const char *line, size_t bytes,
                                  struct trace_request *request,
                                  struct trace_error *error);

#endif
