/* Any line to the scanner; whatever it accepts must survive a second look. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/scan.h"
#include "traces/writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Writes the request as a line and reads that again: the same request. */
static void check_round_trip(const struct trace_request *q)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    if (!f || trace_write(f, q) != 0)
        abort();
    fclose(f);
    struct trace_request again = {0};
    struct trace_error error = {0};
    if (trace_scan_line(text, n, &again, &error) != 0 ||
        again.arrival_us != q->arrival_us ||
        again.input_tokens != q->input_tokens ||
        again.output_tokens != q->output_tokens ||
        again.block_count != q->block_count ||
        (q->block_count > 0 && memcmp(again.hash_ids, q->hash_ids,
                                      q->block_count * sizeof(uint64_t)) != 0))
        abort();
    trace_request_fini(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* A copy of the exact size, so that the sanitizer sees an overrun. */
    char *line = malloc(bytes > 0 ? bytes : 1);

    if (!line)
        return 0;
    memcpy(line, data, bytes);
    struct trace_request q = {0};
    struct trace_error error = {0};
    int rc = trace_scan_line(line, bytes, &q, &error);
    if (rc == 0)
        check_round_trip(&q);
    else if (error.reason[0] == '\0')
        abort();
    trace_request_fini(&q);
    free(line);
    return 0;
}
