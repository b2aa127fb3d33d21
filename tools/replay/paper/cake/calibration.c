/* The constants, and their JSON; see calibration.h. */
#include "tools/replay/paper/cake/calibration.h"

#include <stdio.h>
#include <string.h>

#include "base/json_fields.h"

#define STEP_TOKENS "chunk_tokens * utilisation"

static const struct cake_calibration own = {
    .io_fixed_s = 0.045,
    .io_piece_s = 0.00077,
    .io_piece_tokens = 128,
    .final_step_s = 0.045,
    .chunk_tokens = 512,
    .n_models = 4,
    .models = {{"LongAlpaca-7B", 524288},
               {"LongAlpaca-13B", 819200},
               {"Llama3.1-8B", 131072},
               {"Llama3.1-70B", 327680}},
    .n_costs = 6,
    .costs = {{"2xA100", "LongAlpaca-13B", 0.04992, 0.001045},
              {"A100", "LongAlpaca-13B", 0.08039, 0.001551},
              {"H100", "LongAlpaca-13B", 0.06034, 0.001229},
              {"2xA100", "LongAlpaca-7B", 0.02843, 0.000749},
              {"2xA100", "Llama3.1-8B", 0.03294, 0.000708},
              {"2xA100", "Llama3.1-70B", 0.26215, 0.003221}},
};

const struct cake_model_size *
cake_calibration_size(const struct cake_calibration *c, const char *model)
{
    for (size_t i = 0; i < c->n_models; i++)
        if (strcmp(c->models[i].model, model) == 0)
            return &c->models[i];
    return NULL;
}

const struct cake_chunk_cost *
cake_calibration_cost(const struct cake_calibration *c, const char *hardware,
                      const char *model)
{
    for (size_t i = 0; i < c->n_costs; i++)
        if (strcmp(c->costs[i].hardware, hardware) == 0 &&
            strcmp(c->costs[i].model, model) == 0)
            return &c->costs[i];
    return NULL;
}

/* Reads a field with any text, which is ignored. */
static void read_remark(struct fields *f, const struct fields_object *o,
                        const char *key)
{
    char text[1024];

    fields_text(f, o, key, text, sizeof text, "none");
}

static bool is_name(const char *key)
{
    size_t length = strlen(key);

    for (size_t i = 0; i < length; i++)
        if (key[i] < 32 || key[i] > 126)
            return false;
    return length >= 1 && length < CAKE_NAME_BYTES;
}

static void read_sizes(struct fields *f, const struct fields_object *root,
                       struct cake_calibration *c)
{
    struct fields_object sizes = fields_object(f, root, "kv_bytes_per_token",
                                               "kv_bytes_per_token.", false);
    const char *key;
    json_t *value;

    json_object_foreach(sizes.json, key, value)
    {
        if (c->n_models == CAKE_MODELS_MAX) {
            fields_refuse(f, "", "kv_bytes_per_token", "more than %d models",
                          CAKE_MODELS_MAX);
            return;
        }
        if (!is_name(key)) {
            fields_refuse(f, "", "kv_bytes_per_token",
                          "\"%.80s\": must be a name of 1 to %d printable "
                          "bytes",
                          key, CAKE_NAME_BYTES - 1);
            return;
        }
        struct cake_model_size *size = &c->models[c->n_models++];
        memcpy(size->model, key, strlen(key) + 1);
        size->kv_bytes_per_token =
            fields_integer(f, &sizes, key, 16, INT64_C(1) << 40, NULL);
    }
}

static void read_cost(struct fields *f, json_t *json, const char *path,
                      struct cake_calibration *c)
{
    const struct fields_object o = {json, path};
    static const double none = 0;
    struct cake_chunk_cost cost;

    fields_known(f, &o, "hardware model alpha beta assumed_rising_share");
    fields_text(f, &o, "hardware", cost.hardware, sizeof cost.hardware, NULL);
    fields_text(f, &o, "model", cost.model, sizeof cost.model, NULL);
    cost.alpha_s = fields_number(f, &o, "alpha", 1e-9, 1e4, NULL);
    cost.beta_s = fields_number(f, &o, "beta", 0, 1e4, NULL);
    fields_number(f, &o, "assumed_rising_share", 0, 1, &none);
    if (cake_calibration_cost(c, cost.hardware, cost.model)) {
        fields_refuse(f, path, "", "%s on %s is there twice", cost.model,
                      cost.hardware);
    }
    /* Otherwise the first tokens of a chunk would take negative time. */
    if (cost.alpha_s < cost.beta_s) {
        fields_refuse(f, path, "alpha", "%g is less than beta, %g",
                      cost.alpha_s, cost.beta_s);
    }
    c->costs[c->n_costs++] = cost;
}

static void read_costs(struct fields *f, const struct fields_object *root,
                       struct cake_calibration *c)
{
    const json_t *array = json_object_get(root->json, "chunk_cost_s");
    size_t n = json_array_size(array);

    if (n < 1 || n > CAKE_COSTS_MAX) {
        fields_refuse(f, "", "chunk_cost_s",
                      "must be an array of 1 to %d objects", CAKE_COSTS_MAX);
        return;
    }
    for (size_t i = 0; i < n && f->rc == 0; i++) {
        json_t *json = json_array_get(array, i);
        char path[64];

        snprintf(path, sizeof path, "chunk_cost_s[%zu].", i);
        if (!json_is_object(json)) {
            fields_refuse_got(f, path, "", "an object", json);
            return;
        }
        read_cost(f, json, path, c);
    }
}

static void read_root(struct fields *f, const struct fields_object *root,
                      void *into)
{
    struct cake_calibration *c = into;

    fields_known(f, root,
                 "source io_fixed_s io_piece_s final_step_s io_piece_tokens "
                 "chunk_tokens step_tokens kv_bytes_per_token chunk_cost_s");
    read_remark(f, root, "source");
    c->io_fixed_s = fields_number(f, root, "io_fixed_s", 0, 1e4, NULL);
    c->io_piece_s = fields_number(f, root, "io_piece_s", 0, 1e4, NULL);
    c->final_step_s = fields_number(f, root, "final_step_s", 0, 1e4, NULL);
    c->io_piece_tokens =
        fields_integer(f, root, "io_piece_tokens", 1, 1000000, NULL);
    c->chunk_tokens = fields_integer(f, root, "chunk_tokens", 1, 1000000, NULL);
    if (json_object_get(root->json, "step_tokens"))
        fields_constant(f, root, "step_tokens", STEP_TOKENS);
    read_sizes(f, root, c);
    read_costs(f, root, c);
}

int cake_calibration_read_buffer(const char *text, size_t size,
                                 const char *name,
                                 struct cake_calibration *calibration,
                                 char error[CAKE_ERROR_BYTES])
{
    struct fields f = {"", name, error, CAKE_ERROR_BYTES, 0};
    struct cake_calibration c = {0};
    int rc = fields_read(&f, text, size, read_root, &c);

    if (rc == 0)
        *calibration = c;
    return rc;
}

int cake_calibration_read_file(const char *path,
                               struct cake_calibration *calibration,
                               char error[CAKE_ERROR_BYTES])
{
    if (path)
        return cake_calibration_read_buffer(NULL, CAKE_CALIBRATION_MAX_BYTES,
                                            path, calibration, error);
    *calibration = own;
    return 0;
}
