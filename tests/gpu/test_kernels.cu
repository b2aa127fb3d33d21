/* Every kernel against its reference of kernels_ref.h, with fresh random
 * arguments; tolerances stand there. Runs on a card, or emulated. Exits with
 * 77 where there is no card.
 *
 * Results lie in poisoned memory (NaN) with a margin behind it, so that what
 * was not written, or written beside, shows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>

#include "tests/gpu/fragments.cuh"
#include "workers/engine/cuda/kernels.h"
#include "workers/engine/cuda/multiply.h"

extern "C" {
#include "tests/gpu/kernels_ref.h"
#include "workers/engine/cpu/weights.h"
}

#define MARGIN 64
#define EXIT_SKIPPED 77

#ifdef CUDA_EMULATED
static const int rounds = 2;
#define AT_MOST(emulated, card) (emulated)
#else
static const int rounds = 6;
#define AT_MOST(emulated, card) (card)
#endif

static uint64_t state;
static cudaStream_t stream;
static int failures;

static uint32_t random_below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

/* Nearly normal, of the given standard deviation. */
static float random_normal(float deviation)
{
    float sum = 0;

    for (int i = 0; i < 6; i++)
        sum += (float)random_below(65536) / 65536.0f - 0.5f;
    return sum * 1.41421356f * deviation;
}

static void must(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(rc));
    exit(1);
}

static void fail(const char *kernel, size_t at, double got, double want)
{
    if (failures++ < 20)
        fprintf(stderr, "%s: number %zu is %.9g, not %.9g\n", kernel, at, got,
                want);
}

static void expect(const char *kernel, size_t at, double got, double want,
                   double absolute, double relative)
{
    if (!(fabs(got - want) <= absolute + relative * fabs(want)))
        fail(kernel, at, got, want);
}

/* An array on the card with a margin, all poison at first. */
template <class item> struct device_array {
    item *p;
    size_t n;

    explicit device_array(size_t n_) : p(NULL), n(n_)
    {
        must(cudaMalloc((void **)&p, (n + MARGIN) * sizeof(item)), "memory");
        must(cudaMemsetAsync(p, 0xff, (n + MARGIN) * sizeof(item), stream),
             "poison");
        must(cudaStreamSynchronize(stream), "poison");
    }
    explicit device_array(const std::vector<item> &v) : device_array(v.size())
    {
        put(v);
    }
    device_array(const device_array &) = delete;
    ~device_array()
    {
        cudaFree(p);
    }
    void put(const std::vector<item> &v)
    {
        must(cudaMemcpyAsync(p, v.data(), n * sizeof(item),
                             cudaMemcpyHostToDevice, stream),
             "copy");
        must(cudaStreamSynchronize(stream), "copy");
    }
    /* What is there after all kernels; the margin must be as it was. */
    std::vector<item> get(const char *kernel) const
    {
        std::vector<item> v(n + MARGIN);
        must(cudaGetLastError(), kernel);
        must(cudaStreamSynchronize(stream), kernel);
        must(cudaMemcpy(v.data(), p, v.size() * sizeof(item),
                        cudaMemcpyDeviceToHost),
             "copy");
        const unsigned char *margin = (const unsigned char *)&v[n];
        for (size_t i = 0; i < MARGIN * sizeof(item); i++)
            if (margin[i] != 0xff)
                fail(kernel, n + i / sizeof(item), margin[i], 0xff);
        v.resize(n);
        return v;
    }
};

static std::vector<bf16> random_bf16(size_t n, float deviation)
{
    std::vector<bf16> v(n);

    for (bf16 &x : v)
        x = ref_bf16(random_normal(deviation));
    return v;
}

static std::vector<float> random_float(size_t n, float deviation)
{
    std::vector<float> v(n);

    for (float &x : v)
        x = random_normal(deviation);
    return v;
}

/* Rows of a batch, some of them padding. */
struct rows {
    std::vector<uint32_t> tokens, positions, pages;

    rows(uint32_t n, uint32_t vocab, uint32_t window)
    {
        for (uint32_t i = 0; i < n; i++) {
            tokens.push_back(random_below(vocab));
            positions.push_back(random_below(window));
            pages.push_back(random_below(5) == 0 ? NO_PAGE : i);
        }
    }
};

/* Small whole numbers: every sum is exact. */
static std::vector<bf16> random_whole(size_t n)
{
    std::vector<bf16> v(n);

    for (bf16 &x : v)
        x = ref_bf16((float)random_below(17) - 8);
    return v;
}

static void test_fragments(void)
{
    std::vector<bf16> a = random_whole(256), b = random_whole(128);
    std::vector<float> c(128);
    for (float &x : c)
        x = (float)random_below(100);
    device_array<bf16> da(a), db(b);
    device_array<float> dc(c);
    auto mma = fragment_mma_kernel;
    LAUNCH(mma, 1, WARP_LANES, 0, stream, da.p, db.p, dc.p);
    std::vector<float> got = dc.get("mma");
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < 8; k++) {
            double want = c[r * 8 + k];

            for (int i = 0; i < 16; i++)
                want += ref_float(a[r * 16 + i]) * ref_float(b[i * 8 + k]);
            expect("mma", (size_t)(r * 8 + k), got[r * 8 + k], want, 0, 0);
        }
    device_array<uint32_t> out(2 * 32 * 4);
    auto load = fragment_load_kernel;
    LAUNCH(load, 1, WARP_LANES, 256 * sizeof(bf16), stream, da.p, out.p);
    std::vector<uint32_t> words = out.get("ldmatrix");
    for (int i = 0; i < 2 * 32 * 4 * 2; i++) {
        int turned = i / 256, lane = i / 8 % 32, j = i / 2 % 4;
        int row = lane / 4, column = lane % 4 * 2 + i % 2;
        bf16 want = turned ? a[j * 64 + column * 8 + row]
                           : a[j * 64 + row * 8 + column];

        expect("ldmatrix", (size_t)i, words[i / 2] >> i % 2 * 16 & 0xffff, want,
               0, 0);
    }
}

static void test_draw(void)
{
    uint32_t inputs = 32 * (1 + random_below(AT_MOST(9, 200)));
    uint32_t outputs = 1 + random_below(AT_MOST(99, 5000));
    uint64_t key = state;

    std::vector<bf16> want((size_t)inputs * outputs);
    device_array<bf16> out(want.size());

    launch_draw_matrix(stream, key, 3e-5f, inputs, outputs, out.p);
    ref_draw_matrix(key, 3e-5f, inputs, outputs, want.data());
    std::vector<bf16> got = out.get("draw");
    for (size_t i = 0; i < want.size(); i++)
        expect("draw", i, ref_float(got[i]), ref_float(want[i]), 0, 0);
}

/* The stream and scale of a tensor are those of engine "cpu". */
static void test_draw_is_the_cpus(void)
{
    const struct model_shape *s = model_find("tiny");
    uint32_t inputs, outputs;

    weights_size(s, WEIGHT_GATE, &inputs, &outputs);
    std::vector<float> want((size_t)inputs * outputs);
    device_array<bf16> out(want.size());

    weights_draw(s, 77, WEIGHT_GATE, 3, 0, want.size(), want.data(), 1);
    launch_draw_matrix(stream, weights_stream(77, WEIGHT_GATE, 3),
                       weights_scale(s, WEIGHT_GATE), inputs, outputs, out.p);
    std::vector<bf16> got = out.get("draw");
    for (uint32_t i = 0; i < inputs; i++)
        for (uint32_t o = 0; o < outputs; o++)
            expect("draw as cpu", (size_t)i * outputs + o,
                   ref_float(got[(size_t)o * inputs + i]),
                   ref_float(ref_bf16(want[(size_t)i * outputs + o])), 0, 0);
}

static void test_embed(void)
{
    uint32_t d = 4 * (1 + random_below(AT_MOST(90, 2048)));
    uint32_t n = 1 + random_below(20);

    rows r(n, 128256, 1000);
    device_array<uint32_t> tokens(r.tokens), positions(r.positions),
        pages(r.pages);
    device_array<float> x((size_t)n * d);
    std::vector<float> want(d);

    launch_embed(stream, {tokens.p, positions.p, pages.p, n}, 99, 2e-5f, d,
                 x.p);
    std::vector<float> got = x.get("embed");
    for (uint32_t i = 0; i < n; i++) {
        ref_embed(99, 2e-5f, r.tokens[i], d, want.data());
        for (uint32_t k = 0; k < d; k++)
            expect("embed", (size_t)i * d + k, got[(size_t)i * d + k],
                   r.pages[i] == NO_PAGE ? 0 : want[k], 0, 0);
    }
}

static void test_norm(void)
{
    uint32_t d =
        random_below(3) == 0 ? NORM_MAX : 4 * (1 + random_below(NORM_MAX / 4));
    uint32_t n = 1 + random_below(AT_MOST(3, 300));

    std::vector<float> x = random_float((size_t)n * d, 3);
    device_array<float> from(x);
    device_array<bf16> out(x.size());
    std::vector<double> want(d);

    launch_norm(stream, n, d, 1e-5f, from.p, out.p);
    std::vector<bf16> got = out.get("norm");
    for (uint32_t i = 0; i < n; i++) {
        ref_norm(d, 1e-5, &x[(size_t)i * d], want.data());
        for (uint32_t k = 0; k < d; k++)
            expect("norm", (size_t)i * d + k, ref_float(got[(size_t)i * d + k]),
                   want[k], 1e-6, REF_BF16_RELATIVE);
    }
}

/* Angles, then Q, K and V to their places. */
static void test_place(uint32_t heads, uint32_t kv_heads, uint32_t dim)
{
    const double theta = 10000;
    uint32_t n = 1 + random_below(20), half = dim / 2;
    uint32_t page_tokens = 16 * (1 + random_below(5)), layer = random_below(3);
    uint32_t kv_dim = kv_heads * dim, width = (heads + 2 * kv_heads) * dim;
    size_t layer_numbers = (size_t)2 * page_tokens * kv_dim;

    rows r(n, 10, 32000);
    std::vector<double> frequency(half);
    for (uint32_t i = 0; i < half; i++)
        frequency[i] = pow(theta, -2.0 * i / dim);
    std::vector<bf16> before = random_bf16((size_t)n * width, 1);
    device_array<uint32_t> tokens(r.tokens), positions(r.positions),
        pages(r.pages);
    device_array<double> turn(frequency);
    device_array<float2> turns((size_t)n * half);
    device_array<bf16> qkv(before), kv(3 * layer_numbers * n);
    struct row_view v = {tokens.p, positions.p, pages.p, n};

    launch_angles(stream, v, turn.p, half, turns.p);
    launch_place(
        stream, v,
        {kv.p, 3 * layer_numbers, layer * layer_numbers, page_tokens, kv_dim},
        heads, dim, turns.p, qkv.p);
    std::vector<bf16> q = qkv.get("place"), pool = kv.get("place");
    std::vector<float2> cs = turns.get("angles");
    size_t written = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bf16 *from = &before[(size_t)i * width];
        size_t slot = (size_t)i * 3 * layer_numbers + layer * layer_numbers +
                      (size_t)(r.positions[i] % page_tokens) * kv_dim;

        if (r.pages[i] == NO_PAGE)
            continue;
        for (uint32_t k = 0; k < half; k++) {
            double angle = r.positions[i] * frequency[k];

            expect("angles", k, cs[(size_t)i * half + k].x, cos(angle), 1e-6,
                   0);
            expect("angles", k, cs[(size_t)i * half + k].y, sin(angle), 1e-6,
                   0);
        }
        for (uint32_t h = 0; h < heads + kv_heads; h++) {
            std::vector<double> want(dim);
            for (uint32_t k = 0; k < dim; k++)
                want[k] = ref_float(from[h * dim + k]);
            ref_turn(dim, theta, r.positions[i], want.data());
            const bf16 *got = h < heads ? &q[(size_t)i * width + h * dim]
                                        : &pool[slot + (h - heads) * dim];
            for (uint32_t k = 0; k < dim; k++)
                expect("place", h * dim + k, ref_float(got[k]), want[k], 1e-6,
                       REF_BF16_RELATIVE);
        }
        for (uint32_t k = 0; k < kv_dim; k++)
            expect("place v", k,
                   ref_float(pool[slot + (size_t)page_tokens * kv_dim + k]),
                   ref_float(from[(heads + kv_heads) * dim + k]), 0, 0);
        written += 2 * kv_dim;
    }
    for (bf16 x : pool)
        written -= x != 0xffff;
    if (written != 0)
        fail("place: numbers written elsewhere", 0, (double)written, 0);
}

static void test_swiglu(void)
{
    uint32_t ffn = 8 * (1 + random_below(AT_MOST(500, 3584)));
    uint32_t n = 1 + random_below(AT_MOST(3, 200));

    std::vector<bf16> x = random_bf16((size_t)n * 2 * ffn, 4);
    x[0] = ref_bf16(-3e38f); /* its exponential is infinite */
    device_array<bf16> from(x), out((size_t)n * ffn);

    launch_swiglu(stream, n, ffn, from.p, out.p);
    std::vector<bf16> got = out.get("swiglu");
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < ffn; k++) {
            const bf16 *row = &x[(size_t)i * 2 * ffn];

            expect("swiglu", (size_t)i * ffn + k,
                   ref_float(got[(size_t)i * ffn + k]),
                   ref_swiglu(ref_float(row[k]), ref_float(row[ffn + k])), 1e-6,
                   REF_BF16_RELATIVE);
        }
}

static void test_answer(void)
{
    uint32_t d = 32 * (1 + random_below(AT_MOST(10, 128)));
    uint32_t n_rows = 5, n = 1 + random_below(8);

    std::vector<float> x = random_float((size_t)n_rows * d, 2);
    std::vector<bf16> head =
        random_bf16((size_t)MODEL_OUTPUTS * d, 1 / sqrtf((float)d));
    /* Equal rows: the lowest id of them must win, for one answer at least. */
    memcpy(&head[90 * d], &head[3 * d], d * sizeof(bf16));
    for (uint32_t i = 0; i < d; i++)
        x[i] = ref_float(head[3 * d + i]);
    std::vector<uint32_t> wanted(n);
    for (uint32_t i = 1; i < n; i++)
        wanted[i] = random_below(n_rows);
    device_array<float> from(x);
    device_array<bf16> w(head);
    device_array<uint32_t> want(wanted), out(n);

    launch_answer(stream, want.p, n, d, 1e-5f, from.p, w.p, out.p);
    std::vector<uint32_t> got = out.get("answer");
    if (got[0] != MODEL_FIRST_OUTPUT + 3)
        fail("answer: lowest of equals", 0, got[0], MODEL_FIRST_OUTPUT + 3);
    for (uint32_t i = 0; i < n; i++) {
        std::vector<double> norm(d);
        double most = -INFINITY, mine = -INFINITY;
        ref_norm(d, 1e-5, &x[(size_t)wanted[i] * d], norm.data());
        for (uint32_t o = 0; o < MODEL_OUTPUTS; o++) {
            double sum = 0;

            for (uint32_t k = 0; k < d; k++)
                sum += norm[k] * ref_float(head[(size_t)o * d + k]);
            most = fmax(most, sum);
            if (got[i] == MODEL_FIRST_OUTPUT + o)
                mine = sum;
        }
        expect("answer", i, mine, most, 1e-4, 0);
    }
}

/* --- matrix products --------------------------------------------------------
 */

static void check_product(const char *kernel, uint32_t rows, uint32_t inputs,
                          uint32_t outputs, const std::vector<bf16> &x,
                          const std::vector<bf16> &w,
                          const std::vector<float> &before,
                          const std::vector<double> &got, double relative)
{
    for (uint32_t k = 0; k < 4000; k++) {
        uint32_t r = random_below(rows), o = random_below(outputs);
        size_t at = (size_t)r * outputs + o;
        double want =
            ref_dot(inputs, &x[(size_t)r * inputs], &w[(size_t)o * inputs]);

        if (!before.empty())
            want += before[at];
        expect(kernel, at, got[at], want, 1e-5 * sqrt((double)inputs),
               relative);
    }
}

static void test_tile(bool wide)
{
    uint32_t unit = wide ? 128 : 64;
    uint32_t rows = unit * (1 + random_below(AT_MOST(2, 9)));
    uint32_t inputs = 32 * (1 + random_below(AT_MOST(12, 200)));
    uint32_t outputs = 8 * (1 + random_below(AT_MOST(30, 600)));

    std::vector<bf16> x = random_bf16((size_t)rows * inputs, 1);
    std::vector<bf16> w =
        random_bf16((size_t)outputs * inputs, 1 / sqrtf((float)inputs));
    std::vector<float> y = random_float((size_t)rows * outputs, 1);
    device_array<bf16> dx(x), dw(w), out(y.size());
    device_array<float> sum(y);

    launch_multiply(stream, wide, rows, inputs, outputs, dx.p, dw.p, out.p);
    launch_multiply_add(stream, wide, rows, inputs, outputs, dx.p, dw.p, sum.p);
    std::vector<double> a, b;
    for (bf16 v : out.get("multiply"))
        a.push_back(ref_float(v));
    for (float v : sum.get("multiply_add"))
        b.push_back(v);
    check_product("multiply", rows, inputs, outputs, x, w, {}, a,
                  REF_BF16_RELATIVE);
    check_product("multiply_add", rows, inputs, outputs, x, w, y, b, 1e-5);
}

/* The products as the engine takes them, with the algorithms it chose, for
 * every number of rows that they may be asked for. */
static void test_products(void)
{
    const struct multiply_size sizes[MULTIPLY_MATRICES] = {
        {128, 256}, {128, 512}, {128, 128}, {256, 128}};
    const uint32_t rows = 384;

    std::vector<bf16> weights[MULTIPLY_MATRICES];
    bf16 *on_card[MULTIPLY_MATRICES];
    device_array<bf16> *arrays[MULTIPLY_MATRICES];
    device_array<bf16> room(rows * 512);
    device_array<float> y_room(rows * 512);

    for (int i = 0; i < MULTIPLY_MATRICES; i++) {
        weights[i] = random_bf16((size_t)sizes[i].inputs * sizes[i].outputs,
                                 1 / sqrtf((float)sizes[i].inputs));
        arrays[i] = new device_array<bf16>(weights[i]);
        on_card[i] = arrays[i]->p;
    }
    struct multiply *m =
        multiply_new(stream, sizes, on_card, rows, room.p, y_room.p);
    if (!m) {
        fail("products: no algorithm", 0, 0, 0);
        return;
    }
    printf("  products by %s\n", multiply_name(m));
    for (int i = 0; i < MULTIPLY_MATRICES; i++)
        arrays[i]->put(weights[i]);
    for (int k = 0; k < MULTIPLY_KINDS; k++)
        for (int i = 0; i < MULTIPLY_MATRICES; i++) {
            uint32_t in = sizes[i].inputs, out = sizes[i].outputs;
            bool adds = i == MULTIPLY_O || i == MULTIPLY_DOWN;
            uint32_t unit = k == MULTIPLY_PREFILL ? 128 : 64;

            for (uint32_t r = unit; r <= rows; r += unit)
                if (multiply_run(m, stream, (enum multiply_kind)k,
                                 (enum multiply_matrix)i, r, room.p, on_card[i],
                                 y_room.p) < 0)
                    fail("products: rows", r, k, i);
            uint32_t n = unit * (1 + random_below(rows / unit));
            std::vector<bf16> x = random_bf16((size_t)n * in, 1);
            std::vector<float> before = random_float((size_t)n * out, 1);
            device_array<bf16> dx(x), y(before.size());
            device_array<float> sum(before);
            if (multiply_run(m, stream, (enum multiply_kind)k,
                             (enum multiply_matrix)i, n, dx.p, on_card[i],
                             adds ? (void *)sum.p : (void *)y.p) < 0)
                fail("products", 0, k, i);
            std::vector<double> got;
            if (adds)
                for (float v : sum.get("products"))
                    got.push_back(v);
            else
                for (bf16 v : y.get("products"))
                    got.push_back(ref_float(v));
            check_product("products", n, in, out, x, weights[i],
                          adds ? before : std::vector<float>(), got,
                          adds ? 1e-5 : REF_BF16_RELATIVE);
        }
    multiply_free(m);
    for (device_array<bf16> *a : arrays)
        delete a;
}

/* --- attention --------------------------------------------------------------
 */

/* Requests with their KV on pages in random order, and queries on them. */
struct attend_case {
    uint32_t heads, kv_heads, dim, page_tokens, layer;
    uint32_t kv_dim, width;
    size_t layer_numbers, page_numbers;
    std::vector<bf16> pool, qkv;
    std::vector<uint32_t> table;

    attend_case(uint32_t h, uint32_t kvh, uint32_t d)
        : heads(h), kv_heads(kvh), dim(d),
          page_tokens(16 * (1 + random_below(random_below(2) ? 3 : 17))),
          layer(random_below(2)), kv_dim(kvh * d), width((h + 2 * kvh) * d),
          layer_numbers((size_t)2 * page_tokens * kvh * d),
          page_numbers(2 * layer_numbers)
    {
    }
    /* Pages for a request of n tokens. Returns its place in the table. What no
     * token has yet is NaN. */
    uint32_t add_request(uint32_t n)
    {
        uint32_t first = (uint32_t)table.size();

        for (uint32_t t = 0; t < n; t += page_tokens) {
            table.push_back((uint32_t)(pool.size() / page_numbers));
            std::vector<bf16> page = random_bf16(page_numbers, 1);
            for (uint32_t s = n - t; s < page_tokens; s++)
                for (int w = 0; w < 4; w++)
                    memset(&page[((size_t)w * page_tokens + s) * kv_dim], 0xff,
                           kv_dim * sizeof(bf16));
            pool.insert(pool.end(), page.begin(), page.end());
        }
        return first;
    }
    uint32_t add_rows(uint32_t n)
    {
        uint32_t first = (uint32_t)(qkv.size() / width);

        std::vector<bf16> q = random_bf16((size_t)n * width, 1.5f);
        qkv.insert(qkv.end(), q.begin(), q.end());
        return first;
    }
    const bf16 *key(uint32_t at, uint32_t t, int which, uint32_t head) const
    {
        return &pool[table[at + t / page_tokens] * page_numbers +
                     layer * layer_numbers +
                     ((size_t)which * page_tokens + t % page_tokens) * kv_dim +
                     head * dim];
    }
    /* Checks one row of the result against the reference. */
    void check(const char *kernel, const std::vector<bf16> &out, uint32_t row,
               uint32_t at, uint32_t n_keys) const
    {
        std::vector<double> want(dim);
        std::vector<const bf16 *> k(n_keys), v(n_keys);
        for (uint32_t h = 0; h < heads; h++) {
            for (uint32_t t = 0; t < n_keys; t++) {
                k[t] = key(at, t, 0, h / (heads / kv_heads));
                v[t] = key(at, t, 1, h / (heads / kv_heads));
            }
            ref_attend(dim, &qkv[(size_t)row * width + h * dim], n_keys,
                       k.data(), v.data(), want.data());
            for (uint32_t i = 0; i < dim; i++) {
                size_t n = ((size_t)row * heads + h) * dim + i;

                expect(kernel, n, ref_float(out[n]), want[i],
                       REF_ATTEND_ABSOLUTE, REF_ATTEND_RELATIVE);
            }
        }
    }
};

static uint32_t random_length(uint32_t most)
{
    static const uint32_t edges[] = {1, 15, 16, 63, 64, 65, 127, 128, 129, 257};

    return random_below(2) ? edges[random_below(10)] : 1 + random_below(most);
}

static void test_attend_prefill(uint32_t heads, uint32_t kv_heads, uint32_t dim)
{
    attend_case c(heads, kv_heads, dim);
    uint32_t most = CUDA_TILE_ROWS / (heads / kv_heads);
    std::vector<cuda_tile> tiles;

    for (uint32_t n = 1 + random_below(3); n > 0; n--) {
        uint32_t chunk = random_length(AT_MOST(150, 700));
        uint32_t prefix =
            random_below(3) ? random_length(AT_MOST(200, 3000)) : 0;
        uint32_t at = c.add_request(prefix + chunk), row = c.add_rows(chunk);

        for (uint32_t i = 0; i < chunk; i += most)
            tiles.push_back(
                {row + i, chunk - i < most ? chunk - i : most, prefix + i, at});
    }
    device_array<bf16> pool(c.pool), qkv(c.qkv);
    device_array<uint32_t> table(c.table);
    device_array<cuda_tile> list(tiles);
    device_array<bf16> out(c.qkv.size() / c.width * heads * dim);
    const struct attend_view a = {heads, kv_heads, dim, qkv.p, out.p, table.p};
    if (launch_attend_prefill(stream, &a,
                              {pool.p, c.page_numbers,
                               c.layer * c.layer_numbers, c.page_tokens,
                               c.kv_dim},
                              list.p, (uint32_t)tiles.size()) < 0)
        fail("attend prefill: refused", 0, dim, 0);
    std::vector<bf16> got = out.get("attend prefill");
    for (const cuda_tile &t : tiles)
        for (uint32_t i = 0; i < t.n_tokens; i++)
            if (i == 0 || i + 1 == t.n_tokens || random_below(16) == 0)
                c.check("attend prefill", got, t.row + i, t.table,
                        t.position + i + 1);
    for (bf16 v : got)
        if (v == 0xffff)
            fail("attend prefill: not written", 0, 0, 0);
}

static void test_attend_decode(uint32_t heads, uint32_t kv_heads, uint32_t dim)
{
    attend_case c(heads, kv_heads, dim);
    uint32_t first_row = c.add_rows(random_below(3)), n = 1 + random_below(4);
    std::vector<cuda_split> splits;
    std::vector<cuda_decode> decodes;
    std::vector<uint32_t> ends;

    first_row = (uint32_t)(c.qkv.size() / c.width);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = random_length(AT_MOST(700, 5000));
        uint32_t at = c.add_request(end);

        c.add_rows(1);
        decodes.push_back({(uint32_t)splits.size(),
                           (end + CUDA_SPLIT_KEYS - 1) / CUDA_SPLIT_KEYS});
        for (uint32_t k = 0; k < end; k += CUDA_SPLIT_KEYS)
            splits.push_back(
                {i, k, k + CUDA_SPLIT_KEYS < end ? k + CUDA_SPLIT_KEYS : end,
                 at});
        ends.push_back(end);
    }
    device_array<bf16> pool(c.pool), qkv(c.qkv);
    device_array<uint32_t> table(c.table);
    device_array<cuda_split> list(splits);
    device_array<cuda_decode> pieces(decodes);
    device_array<float> partial(splits.size() * heads * PARTIAL_FLOATS(dim));
    device_array<bf16> out(c.qkv.size() / c.width * heads * dim);
    const struct attend_view a = {heads, kv_heads, dim, qkv.p, out.p, table.p};
    if (launch_attend_decode(stream, &a,
                             {pool.p, c.page_numbers, c.layer * c.layer_numbers,
                              c.page_tokens, c.kv_dim},
                             first_row, list.p, (uint32_t)splits.size(),
                             pieces.p, n, partial.p) < 0)
        fail("attend decode: refused", 0, dim, 0);
    std::vector<bf16> got = out.get("attend decode");
    (void)partial.get("attend decode");
    for (uint32_t i = 0; i < n; i++)
        c.check("attend decode", got, first_row + i,
                splits[decodes[i].first_split].table, ends[i]);
}

static void run(const char *name, void (*test)(void))
{
    int before = failures;

    for (int i = 0; i < rounds; i++)
        test();
    printf("%s %s\n", failures == before ? "ok  " : "FAIL", name);
    fflush(stdout);
}

static void all_prefill(void)
{
    test_attend_prefill(4, 2, 32);
    test_attend_prefill(2, 2, 32);
    test_attend_prefill(4, 1, 128);
    test_attend_prefill(8, 1, 128);
    test_attend_prefill(2, 2, 128);
}

static void all_decode(void)
{
    test_attend_decode(4, 2, 32);
    test_attend_decode(16, 1, 32);
    test_attend_decode(8, 2, 128);
    test_attend_decode(2, 2, 128);
}

static void all_place(void)
{
    test_place(4, 2, 32);
    test_place(8, 1, 128);
}

static void all_tiles(void)
{
    test_tile(true);
    test_tile(false);
}

int main(int, char **argv)
{
    const char *given = getenv("CONDUCTOR_SEED");
    char why[256];

    state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    if (cuda_card_present(why, sizeof(why)) < 0) {
        printf("skipped: %s\n", why);
        return EXIT_SKIPPED;
    }
    printf("%s: CONDUCTOR_SEED=%llu\n", argv[0], (unsigned long long)state);
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(attend_prefill_prepare(), "kernels");
    must(attend_decode_prepare(), "kernels");
    must(multiply_prepare(), "kernels");
    run("mma, ldmatrix", test_fragments);
    run("draw", test_draw);
    run("draw as engine cpu", test_draw_is_the_cpus);
    run("embed", test_embed);
    run("norm", test_norm);
    run("angles, place", all_place);
    run("swiglu", test_swiglu);
    run("answer", test_answer);
    run("multiply", all_tiles);
    run("products of the engine", test_products);
    run("attend prefill", all_prefill);
    run("attend decode", all_decode);
    cudaStreamDestroy(stream);
    printf("%d failed checks\n", failures);
    return failures != 0;
}
