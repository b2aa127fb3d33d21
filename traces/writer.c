/* Writes one line per request, spaced like the published traces. */
#include "traces/writer.h"

#include <errno.h>
#include <inttypes.h>

int trace_write(FILE *file, const struct trace_request *request)
{
    fprintf(file,
            "{\"timestamp\": %" PRId64 ", \"input_length\": %" PRIu32
            ", \"output_length\": %" PRIu32 ", \"hash_ids\": [",
            request->arrival_us / 1000, request->input_tokens,
            request->output_tokens);
    for (size_t i = 0; i < request->block_count; i++)
        fprintf(file, "%s%" PRIu64, i > 0 ? ", " : "", request->hash_ids[i]);
    fputs("]", file);
    if (request->tenant > 0)
        fprintf(file, ", \"tenant\": %" PRIu64, request->tenant);
    if (request->priority != 0)
        fprintf(file, ", \"priority\": %" PRId32, request->priority);
    fputs("}\n", file);
    return ferror(file) != 0 ? -EIO : 0;
}
