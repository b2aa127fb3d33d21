/*
 * Parses one line of the Mooncake paper's format. Pure and strict. A general
 * parser would spend most of its time on a JSON node for each block id, and the
 * simulator reads millions of them.
 */
#ifndef TRACES_SCAN_H
#define TRACES_SCAN_H

#include <stddef.h>

#include "traces/trace.h"

/*
 * Reads the JSON object in line[0 .. bytes) (no newline needed) into `request`,
 * whose memory for ids is reused and grown. The fields of trace.h may come in
 * any order, each once. Other fields are skipped if they are numbers, strings,
 * true, false or null. Checks the line alone; trace_reader checks conditions
 * between lines.
 * Returns 0; -EINVAL with `error` filled, except its line, and the request
 * valid but meaningless; or -ENOMEM. O(bytes).
 */
[[nodiscard]] int trace_scan_line(const char *line, size_t bytes,
                                  struct trace_request *request,
                                  struct trace_error *error);

#endif
