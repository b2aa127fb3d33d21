/* Output files of traces. */
#ifndef TRACES_FILE_H
#define TRACES_FILE_H

#include <stdio.h>

/*
 * Opens `path` for writing, emptied; through gzip if its name ends in ".gz".
 * Equal content gives an identical file. Returns a stream, owned; fclose()
 * tells whether all was written. NULL with errno set on failure.
 */
[[nodiscard]] FILE *trace_file_create(const char *path);

#endif
