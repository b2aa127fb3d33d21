/* Engine "cpu" against a slow and obvious transformer: straight loops in
 * double precision, one token after the other, no tiles, no BLAS. Rounding
 * differences grow through the layers of a random model, hence the tolerance:
 * 2e-4 of the root mean square of a row, when float32 has 6e-8. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine_rig.h"
#include "tests/unit/suite.h"
#include "workers/engine/cpu/kernels.h"
#include "workers/engine/cpu/weights.h"

#define TOLERANCE 2e-4

/* The obvious transformer. kv[which][layer][token][kv_dim]. */
struct reference {
    const struct model_shape *s;
    uint64_t seed;
    uint32_t max_tokens;
    float *w[WEIGHT_TENSORS]; /* all layers, one behind the other */
    size_t size[WEIGHT_TENSORS];
    double *kv[2];
    double logits[MODEL_OUTPUTS];
};

static void reference_init(struct reference *r, const struct model_shape *s,
                           uint64_t seed, uint32_t max_tokens)
{
    size_t kv_dim = (size_t)s->kv_heads * s->head_dim;

    *r = (struct reference){.s = s, .seed = seed, .max_tokens = max_tokens};
    for (int t = 0; t < WEIGHT_TENSORS; t++) {
        uint32_t rows;
        uint32_t columns;

        weights_size(s, (enum weight_tensor)t, &rows, &columns);
        uint32_t layers =
            t == WEIGHT_EMBEDDING || t == WEIGHT_HEAD ? 1 : s->layers;
        r->size[t] = (size_t)rows * columns;
        r->w[t] = malloc(r->size[t] * layers * sizeof(float));
        for (uint32_t l = 0; l < layers; l++)
            weights_draw(s, seed, (enum weight_tensor)t, l, 0, r->size[t],
                         r->w[t] + l * r->size[t], 1);
    }
    for (int w = 0; w < 2; w++)
        r->kv[w] = calloc(s->layers * max_tokens * kv_dim, sizeof(double));
}

static void reference_fini(struct reference *r)
{
    for (int t = 0; t < WEIGHT_TENSORS; t++)
        free(r->w[t]);
    free(r->kv[0]);
    free(r->kv[1]);
}

static double *kv_at(const struct reference *r, int which, uint32_t layer,
                     uint32_t token)
{
    size_t kv_dim = (size_t)r->s->kv_heads * r->s->head_dim;

    return r->kv[which] + ((size_t)layer * r->max_tokens + token) * kv_dim;
}

static void multiply(const struct reference *r, enum weight_tensor t,
                     uint32_t layer, const double *x, double *y)
{
    uint32_t rows;
    uint32_t columns;

    weights_size(r->s, t, &rows, &columns);
    for (uint32_t o = 0; o < columns; o++) {
        y[o] = 0;
        for (uint32_t i = 0; i < rows; i++)
            y[o] +=
                x[i] *
                (double)r->w[t][layer * r->size[t] + (size_t)i * columns + o];
    }
}

static void norm(const struct reference *r, const double *x, double *y)
{
    double sum = 0;

    for (uint32_t i = 0; i < r->s->d_model; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < r->s->d_model; i++)
        y[i] = x[i] / sqrt(sum / r->s->d_model + (double)r->s->norm_eps);
}

static void rotate(const struct reference *r, uint32_t heads, uint32_t position,
                   double *x)
{
    uint32_t dim = r->s->head_dim;

    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < dim / 2; i++) {
            double angle =
                position * pow((double)r->s->rope_theta, -2.0 * i / dim);
            double a = x[h * dim + i];
            double b = x[h * dim + i + dim / 2];

            x[h * dim + i] = a * cos(angle) - b * sin(angle);
            x[h * dim + i + dim / 2] = b * cos(angle) + a * sin(angle);
        }
}

static void attend(const struct reference *r, uint32_t layer, uint32_t position,
                   const double *q, double *out)
{
    uint32_t dim = r->s->head_dim;
    double *weight = malloc((position + 1) * sizeof(double));

    for (uint32_t h = 0; h < r->s->heads; h++) {
        uint32_t kv_head = h / (r->s->heads / r->s->kv_heads);
        double most = -INFINITY;
        double sum = 0;

        for (uint32_t t = 0; t <= position; t++) {
            const double *k = kv_at(r, 0, layer, t) + kv_head * dim;

            weight[t] = 0;
            for (uint32_t d = 0; d < dim; d++)
                weight[t] += q[h * dim + d] * k[d] / sqrt(dim);
            most = fmax(most, weight[t]);
        }
        for (uint32_t t = 0; t <= position; t++)
            sum += weight[t] = exp(weight[t] - most);
        for (uint32_t d = 0; d < dim; d++) {
            out[h * dim + d] = 0;
            for (uint32_t t = 0; t <= position; t++)
                out[h * dim + d] +=
                    weight[t] / sum * kv_at(r, 1, layer, t)[kv_head * dim + d];
        }
    }
    free(weight);
}

static void reference_token(struct reference *r, uint32_t token,
                            uint32_t position)
{
    const struct model_shape *s = r->s;
    size_t widest = s->d_model + s->ffn + (size_t)s->heads * s->head_dim;
    double *x = calloc(6 * widest, sizeof(double));
    double *n = x + widest;
    double *q = n + widest;
    double *a = q + widest;
    double *g = a + widest;
    double *u = g + widest;

    for (uint32_t i = 0; i < s->d_model; i++)
        x[i] = (double)r->w[WEIGHT_EMBEDDING][(size_t)token * s->d_model + i];
    for (uint32_t l = 0; l < s->layers; l++) {
        norm(r, x, n);
        multiply(r, WEIGHT_Q, l, n, q);
        multiply(r, WEIGHT_K, l, n, kv_at(r, 0, l, position));
        multiply(r, WEIGHT_V, l, n, kv_at(r, 1, l, position));
        rotate(r, s->heads, position, q);
        rotate(r, s->kv_heads, position, kv_at(r, 0, l, position));
        attend(r, l, position, q, a);
        multiply(r, WEIGHT_O, l, a, n);
        for (uint32_t i = 0; i < s->d_model; i++)
            x[i] += n[i];
        norm(r, x, n);
        multiply(r, WEIGHT_GATE, l, n, g);
        multiply(r, WEIGHT_UP, l, n, u);
        for (uint32_t i = 0; i < s->ffn; i++)
            g[i] = g[i] / (1 + exp(-g[i])) * u[i];
        multiply(r, WEIGHT_DOWN, l, g, n);
        for (uint32_t i = 0; i < s->d_model; i++)
            x[i] += n[i];
    }
    norm(r, x, n);
    multiply(r, WEIGHT_HEAD, 0, n, r->logits);
    free(x);
}

/* Largest distance between a KV row and the reference's, over the root mean
 * square of the row. */
static double worst_row(const struct reference *ref,
                        const struct rig_request *r)
{
    uint32_t bt = r->layout->block_tokens;
    uint32_t dim = ref->s->kv_heads * ref->s->head_dim;
    double worst = 0;

    for (uint32_t l = 0; l < ref->s->layers; l++)
        for (uint32_t t = 0; t < r->done; t++)
            for (int w = 0; w < 2; w++) {
                const float *got =
                    engine_kv_row(r->layout, r->blocks[t / bt], l,
                                  (enum engine_which)w, t % bt);
                const double *want = kv_at(ref, w, l, t);
                double square = 0;
                double far = 0;

                for (uint32_t i = 0; i < dim; i++) {
                    square += want[i] * want[i];
                    far = fmax(far, fabs(want[i] - (double)got[i]));
                    if (isnan(got[i]))
                        far = INFINITY;
                }
                worst = fmax(worst, far / sqrt(square / dim));
            }
    return worst;
}

/* How far the chosen output is below the reference's best. */
static double short_of_best(const struct reference *ref, uint32_t token)
{
    double best = -INFINITY;

    for (uint32_t i = 0; i < MODEL_OUTPUTS; i++)
        best = fmax(best, ref->logits[i]);
    return best - ref->logits[token - MODEL_FIRST_OUTPUT];
}

static void compare(const struct model_shape *shape, uint32_t block_tokens,
                    uint32_t n, uint32_t answers)
{
    uint64_t seed = rig_seed(shape->name);
    struct engine_config config = {.kind = "cpu",
                                   .shape = shape,
                                   .seed = seed,
                                   .block_tokens = block_tokens};
    char err[256];
    struct engine *e = engine_new(&config, err, sizeof(err));
    struct reference ref;
    struct rig_request r;
    uint32_t prompt[256];
    double worst_answer = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = rig_random(&seed, shape->vocab);
    reference_init(&ref, shape, config.seed, n + answers);
    rig_init(&r, e, prompt, n, answers);
    CU_ASSERT_EQUAL(rig_run(e, &r, 37, answers), 0);
    for (uint32_t t = 0; t < r.done; t++) {
        reference_token(&ref, r.tokens[t], t);
        if (t >= n - 1)
            worst_answer =
                fmax(worst_answer, short_of_best(&ref, r.tokens[t + 1]));
    }
    double worst = worst_row(&ref, &r);
    printf("[row %.1e, answer %.1e] ", worst, worst_answer);
    CU_ASSERT(worst < TOLERANCE);
    CU_ASSERT(worst_answer < TOLERANCE);
    rig_fini(&r);
    reference_fini(&ref);
    engine_free(e);
}

static void test_tiny(void)
{
    compare(model_find("tiny"), 64, 150, 12);
}

/* Groups of three heads, widths that fill no vector and no tile. */
static void test_odd_shape(void)
{
    static const struct model_shape odd = {
        "odd", 3, 44, 6, 2, 24, 71, 200, 500000.0f, 1e-6f, 4096};

    compare(&odd, 16, 131, 6);
}

/* One head per KV head, as in Llama 2. */
static void test_no_groups(void)
{
    static const struct model_shape mha = {
        "mha", 2, 96, 3, 3, 128, 100, 300, 10000.0f, 1e-5f, 4096};

    compare(&mha, 32, 70, 4);
}

/* attend() of every instruction set that this processor has: against double
 * precision, and bit for bit alike whatever the number of lanes, of masked
 * keys and of keys that only a neighbour sees. */
static void check_attend(const struct cpu_kernels *k, uint64_t *state)
{
    enum { DIM = 24, KEYS = 200, BT = 48, STRIDE = 40 };
    static float kv[2 * 5 * BT * STRIDE];
    float q[DIM * CPU_ATTEND_MAX_LANES];
    float out[DIM * CPU_ATTEND_MAX_LANES];
    float first[DIM];
    uint32_t limit[CPU_ATTEND_MAX_LANES];
    void *blocks[5];
    uint32_t see = 1 + rig_random(state, KEYS);

    for (size_t i = 0; i < sizeof(kv) / sizeof(kv[0]); i++)
        kv[i] = (float)rig_random(state, 2001) * 1e-3f - 1.0f;
    for (int i = 0; i < 5; i++)
        blocks[i] = kv + 2 * i * BT * STRIDE;
    float mine[DIM];
    for (int d = 0; d < DIM; d++)
        mine[d] = (float)rig_random(state, 2001) * 1e-3f - 1.0f;
    for (uint32_t round = 0; round < 8; round++) {
        uint32_t lanes = round % 2 ? k->narrow : k->wide;
        uint32_t at = rig_random(state, lanes);
        struct attend_args a = {.q = q,
                                .limit = limit,
                                .lanes = lanes,
                                .head_dim = DIM,
                                .blocks = blocks,
                                .block_tokens = BT,
                                .k_offset = 8,
                                .v_offset = (size_t)BT * STRIDE + 8,
                                .stride = STRIDE,
                                .out = out};

        for (uint32_t l = 0; l < lanes; l++) {
            limit[l] = l == at ? see : 1 + rig_random(state, KEYS);
            a.n_keys = limit[l] > a.n_keys ? limit[l] : a.n_keys;
            for (uint32_t d = 0; d < DIM; d++)
                q[d * lanes + l] =
                    l == at ? mine[d] : (float)rig_random(state, 100);
        }
        k->attend(&a);
        for (uint32_t d = 0; d < DIM; d++) {
            if (round == 0)
                first[d] = out[d * lanes + at];
            CU_ASSERT_EQUAL(
                memcmp(&first[d], &out[d * lanes + at], sizeof(float)), 0);
        }
    }

    double sum = 0;
    double want[DIM] = {0};
    for (uint32_t t = 0; t < see; t++) {
        const float *key =
            kv + 2 * (t / BT) * BT * STRIDE + 8 + t % BT * STRIDE;
        double score = 0;

        for (uint32_t d = 0; d < DIM; d++)
            score += (double)mine[d] * (double)key[d];
        sum += exp2(score);
        for (uint32_t d = 0; d < DIM; d++)
            want[d] += exp2(score) * (double)key[(size_t)BT * STRIDE + d];
    }
    for (uint32_t d = 0; d < DIM; d++)
        CU_ASSERT_DOUBLE_EQUAL((double)first[d], want[d] / sum, 2e-6);
}

static void test_attend(void)
{
    uint64_t state = rig_seed("attend");

    for (size_t i = 0; cpu_kernels_at(i); i++) {
        printf("%s ", cpu_kernels_at(i)->isa);
        for (int round = 0; round < 30; round++)
            check_attend(cpu_kernels_at(i), &state);
    }
}

static void test_vertical(void)
{
    enum { N = 37 };
    float x[N * CPU_LANES];
    float y[N * CPU_LANES];
    float gate[N * CPU_LANES];

    for (size_t k = 0; cpu_kernels_at(k); k++) {
        for (int i = 0; i < N * CPU_LANES; i++) {
            x[i] = (float)(i * 7919 % 1009) / 20.0f - 25.0f;
            gate[i] = (float)(i % 401) - 200.0f;
        }
        cpu_kernels_at(k)->rms_norm(N, 1e-5f, x, y);
        cpu_kernels_at(k)->swiglu(N, gate, x);
        for (int l = 0; l < CPU_LANES; l++) {
            double sum = 0;

            for (int i = 0; i < N; i++)
                sum +=
                    (double)x[i * CPU_LANES + l] * (double)x[i * CPU_LANES + l];
            for (int i = 0; i < N; i++) {
                int at = i * CPU_LANES + l;
                double g = (double)(at % 401) - 200.0;
                double want = (double)x[at] * g / (1 + exp(-g));

                CU_ASSERT_DOUBLE_EQUAL(
                    (double)y[at], (double)x[at] / sqrt(sum / N + 1e-5), 1e-5);
                CU_ASSERT_DOUBLE_EQUAL((double)gate[at], want,
                                       1e-6 * (1 + fabs(want)));
            }
        }
    }
}

static const struct suite_test tests[] = {
    {"tiny against the reference", test_tiny},
    {"odd shape against the reference", test_odd_shape},
    {"no groups against the reference", test_no_groups},
    {"attention kernels", test_attend},
    {"norm and SwiGLU kernels", test_vertical},
};
SUITE("engine_cpu", tests)
