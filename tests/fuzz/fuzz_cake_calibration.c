/* Any bytes are refused with a message of one line, or give constants within
 * their bounds. */
#include <assert.h>
#include <string.h>

#include "tools/replay/paper/cake/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct cake_calibration *c)
{
    assert(c->io_fixed_s >= 0 && c->io_piece_s >= 0 && c->final_step_s >= 0);
    assert(c->io_piece_tokens >= 1 && c->chunk_tokens >= 1);
    assert(c->n_models <= CAKE_MODELS_MAX);
    assert(c->n_costs >= 1 && c->n_costs <= CAKE_COSTS_MAX);
    for (size_t i = 0; i < c->n_costs; i++) {
        const struct cake_chunk_cost *cost = &c->costs[i];

        assert(cost->alpha_s > 0 && cost->beta_s >= 0);
        assert(cake_calibration_cost(c, cost->hardware, cost->model) == cost);
    }
    for (size_t i = 0; i < c->n_models; i++) {
        const struct cake_model_size *model = &c->models[i];

        assert(model->kv_bytes_per_token >= 16);
        assert(cake_calibration_size(c, model->model) == model);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[CAKE_ERROR_BYTES] = "";
    struct cake_calibration c;
    int rc = cake_calibration_read_buffer((const char *)data, size, "fuzz", &c,
                                          error);

    if (rc != 0) {
        assert(strncmp(error, "fuzz: ", 6) == 0);
        assert(!strchr(error, '\n'));
        return 0;
    }
    check(&c);
    return 0;
}
