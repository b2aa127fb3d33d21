/* Files that traces are written to. */
#ifndef TRACES_FILE_H
#define TRACES_FILE_H

#include <stdio.h>

/*
 * Opens `path` for writing, emptied; through gzip if its name ends in ".gz".
 * The same bytes written give the same file. Returns a stream that the caller
 * closes with fclose(), whose result says whether all was written; or NULL with
 * errno set.
 */
[[nodiscard]] FILE *trace_file_create(const char *path);

#endif
