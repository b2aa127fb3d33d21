/* Any bytes are refused with a message of one line, or give rows within their
 * bounds. */
#include <assert.h>
#include <string.h>

#include "tools/replay/paper/cake/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const struct cake_row *row)
{
    const struct cake_setup *s = &row->setup;

    assert(s->hardware[0] != '\0' &&
           strnlen(s->hardware, CAKE_NAME_BYTES) < CAKE_NAME_BYTES);
    assert(s->model[0] != '\0' &&
           strnlen(s->model, CAKE_NAME_BYTES) < CAKE_NAME_BYTES);
    assert(s->utilisation > 0 && s->utilisation <= 1);
    assert(s->bandwidth_gbps > 0 && s->bandwidth_gbps <= 1e6);
    assert(s->n_tokens >= 1 && s->chunk_tokens >= 1);
    assert(s->kv_bits >= 1 && s->kv_bits <= 16);
    assert(row->speedup_io > 0 && row->speedup_compute > 0);
    assert(row->line >= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[CAKE_ERROR_BYTES] = "";
    struct cake_table table = {0};
    int rc = cake_table_read((const char *)data, size, "fuzz", &table, error);

    if (rc != 0) {
        assert(strncmp(error, "fuzz:", 5) == 0);
        assert(!strchr(error, '\n'));
        assert(!table.rows && table.count == 0);
    } else {
        assert(table.count >= 1);
    }
    for (size_t i = 0; i < table.count; i++)
        check_row(&table.rows[i]);
    cake_table_fini(&table);
    return 0;
}
