#include "tests/gpu/bench_rig.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/model_facts.h"

static const char options_help[] =
    "  --engine KIND      cuda or cpu [cuda]\n"
    "  --model NAME       shape [llama3-8b]\n"
    "  --layers N         only the first N layers [all]\n"
    "  --max-tokens N     longest request [the bench's own]\n"
    "  --repeats N        measurements of a cell, the median counts [5]\n"
    "  --kv-mib N         most MiB of host blocks [16384]\n"
    "  --device-kv-mib N  most MiB of KV on the card [what is free there]\n"
    "  --seconds S        leave out what would not fit in [60]\n"
    "  --seed N           of weights and prompts [1]\n"
    "  --json FILE        write the results there as well\n";

double bench_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), ascending);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

uint32_t bench_random(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

double bench_left_s(const struct bench *b)
{
    return b->options.seconds - (bench_now_us() - (double)b->start_us) * 1e-6;
}

void bench_say(const struct bench *b, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s [%.1f s] ", b->name,
            (bench_now_us() - (double)b->start_us) * 1e-6);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

__attribute__((noreturn)) static void
wrong(const struct bench *b, const char *option, const char *value)
{
    fprintf(stderr, "%s: --%s: '%s' is not a number that fits; see --help\n",
            b->name, option, value);
    exit(2);
}

static double number(const struct bench *b, const char *option,
                     const char *value, double least, double most)
{
    char *end;
    double x = strtod(value, &end);

    if (end == value || *end || !(x >= least && x <= most))
        wrong(b, option, value);
    return x;
}

static void parse(struct bench *b, const char *about, int argc, char **argv)
{
    static const struct option longs[] = {
        {"engine", required_argument, NULL, 'e'},
        {"model", required_argument, NULL, 'm'},
        {"layers", required_argument, NULL, 'l'},
        {"max-tokens", required_argument, NULL, 't'},
        {"repeats", required_argument, NULL, 'r'},
        {"kv-mib", required_argument, NULL, 'k'},
        {"device-kv-mib", required_argument, NULL, 'd'},
        {"seconds", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'S'},
        {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct bench_options *o = &b->options;
    int i = 0;

    for (int c; (c = getopt_long(argc, argv, "", longs, &i)) != -1;) {
        const char *name = c == '?' ? NULL : longs[i].name;

        switch (c) {
        case 'e':
            o->engine = optarg;
            break;
        case 'm':
            o->model = optarg;
            break;
        case 'l':
            o->layers = (uint32_t)number(b, name, optarg, 1, 1000);
            break;
        case 't':
            o->max_tokens = (uint32_t)number(b, name, optarg, 64, 1 << 20);
            break;
        case 'r':
            o->repeats = (uint32_t)number(b, name, optarg, 1, 100);
            break;
        case 'k':
            o->kv_mib = (uint64_t)number(b, name, optarg, 1, 1 << 24);
            break;
        case 'd':
            o->device_kv_mib = (uint64_t)number(b, name, optarg, 1, 1 << 24);
            break;
        case 's':
            o->seconds = number(b, name, optarg, 0.1, 3600);
            break;
        case 'S':
            o->seed = (uint64_t)number(b, name, optarg, 0, 1e15);
            break;
        case 'j':
            o->json = optarg;
            break;
        case 'h':
            printf("usage: %s [OPTION]...\n\n%s\n%s", b->name, about,
                   options_help);
            exit(0);
        default:
            exit(2);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: '%s' is no option; see --help\n", b->name,
                argv[optind]);
        exit(2);
    }
}

static const struct card *find_card(const char *engine)
{
#ifdef CONDUCTOR_CUDA_EMULATED
    if (strcmp(engine, "cuda") == 0)
        return &card_emulated;
#elif defined(CONDUCTOR_CUDA)
    if (strcmp(engine, "cuda") == 0)
        return &card_cuda;
#endif
    return strcmp(engine, "cpu") == 0 ? &card_host : NULL;
}

int bench_open(struct bench *b, const char *name, const char *about, int argc,
               char **argv)
{
    char names[256];
    int rc = -EINVAL;

    b->name = name;
    b->start_us = (int64_t)bench_now_us();
    b->options = (struct bench_options){.engine = "cuda",
                                        .model = "llama3-8b",
                                        .repeats = 5,
                                        .kv_mib = 16384,
                                        .seed = 1,
                                        .seconds = 60};
    parse(b, about, argc, argv);
    b->shape = model_find(b->options.model);
    b->card = find_card(b->options.engine);
    if (!b->shape)
        snprintf(b->err, sizeof(b->err), "--model %s: must be one of %s",
                 b->options.model, model_names(names, sizeof(names)));
    else if (!b->card)
        snprintf(b->err, sizeof(b->err),
                 "--engine %s: not built here, or unknown", b->options.engine);
    else
        rc =
            b->card->name(b->device, sizeof(b->device), b->err, sizeof(b->err));
    if (rc != 0) {
        fprintf(stderr, "%s: %s\n", name, b->err);
        return rc;
    }
    sheet_fact(&b->sheet, "engine", b->options.engine);
    sheet_fact(&b->sheet, "model", b->options.model);
    sheet_fact(&b->sheet, "device", b->device);
    sheet_fact(&b->sheet, "gpu", b->card->gpu ? "yes" : "no: a trial");
    return 0;
}

int bench_engine(struct bench *b, const struct model_shape *shape,
                 uint32_t block_tokens, uint32_t step_tokens)
{
    const struct engine_config config = {
        .kind = b->options.engine,
        .shape = shape ? shape : b->shape,
        .seed = b->options.seed,
        .layers = b->options.layers,
        .block_tokens = block_tokens,
        .step_tokens = step_tokens,
        .device_kv_bytes = b->options.device_kv_mib << 20,
    };
    const char *better = engine_blas_coretype();

    if (better && !b->engine)
        bench_say(b, "OPENBLAS_CORETYPE=%s would be faster", better);
    engine_free(b->engine);
    b->engine = engine_new(&config, b->err, sizeof(b->err));
    if (!b->engine)
        return -EINVAL;
    b->layout = engine_kv_layout(b->engine);
    const char *device = engine_device(b->engine);
    if (*device) {
        bench_say(b, "%s", device);
        sheet_fact(&b->sheet, "engine_device", device);
    }
    return 0;
}

/* Whole or not at all, as it may be the last thing that the program does. */
static int write_json(struct bench *b)
{
    char part[4096];

    if (!b->options.json)
        return 0;
    snprintf(part, sizeof(part), "%s.part", b->options.json);
    FILE *out = fopen(part, "w");
    if (!out)
        return -errno;
    int rc = sheet_write_json(&b->sheet, b->name, out);
    if (fclose(out) != 0 && rc == 0)
        rc = -errno;
    return rc == 0 && rename(part, b->options.json) != 0 ? -errno : rc;
}

void bench_end_row(struct bench *b)
{
    sheet_end_row(&b->sheet, stdout);
    /* bench_close() says it if that fails. */
    (void)!write_json(b);
}

int bench_close(struct bench *b, int rc)
{
    if (rc == -ENODEV && b->engine)
        snprintf(b->err, sizeof(b->err), "%s", engine_error(b->engine));
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", b->name,
                b->err[0] ? b->err : strerror(-rc));
        sheet_fact(&b->sheet, "failed", b->err[0] ? b->err : strerror(-rc));
    }
    if (b->sheet.left_out)
        printf("left out: %u (no time, memory or room)\n", b->sheet.left_out);
    int written = write_json(b);
    if (written < 0)
        fprintf(stderr, "%s: --json %s: %s\n", b->name, b->options.json,
                strerror(-written));
    engine_free(b->engine);
    return rc < 0 || written < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

uint32_t bench_blocks(const struct bench *b, uint32_t tokens)
{
    return (tokens + b->layout->block_tokens - 1) / b->layout->block_tokens;
}

int bench_kv_init(struct bench *b, struct bench_kv *kv, uint32_t tokens)
{
    uint32_t n = bench_blocks(b, tokens);
    size_t bytes = (size_t)n * b->layout->block_bytes;

    kv->blocks = calloc(n, sizeof(*kv->blocks));
    kv->memory = engine_kv_alloc(b->engine, bytes);
    kv->n_blocks = n;
    if (!kv->blocks || !kv->memory) {
        bench_kv_fini(b, kv);
        snprintf(b->err, sizeof(b->err), "no memory for %zu MiB of host blocks",
                 bytes >> 20);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        kv->blocks[i] = (char *)kv->memory + i * b->layout->block_bytes;
    return 0;
}

void bench_kv_fini(struct bench *b, struct bench_kv *kv)
{
    if (kv->memory)
        bench_kv_forget(b, kv, 0, kv->n_blocks);
    engine_kv_free(b->engine, kv->memory);
    free(kv->blocks);
    *kv = (struct bench_kv){0};
}

void bench_kv_forget(struct bench *b, const struct bench_kv *kv, uint32_t from,
                     uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        engine_kv_forget(b->engine, kv->blocks[i]);
}

uint32_t *bench_prompt(const struct bench *b, uint32_t n)
{
    uint32_t *prompt = calloc(n, sizeof(*prompt));
    uint64_t state = b->options.seed;

    for (uint32_t i = 0; prompt && i < n; i++)
        prompt[i] = MODEL_FIRST_OUTPUT + bench_random(&state, MODEL_OUTPUTS);
    return prompt;
}

double bench_step_us(struct bench *b, const uint32_t *prompt,
                     const struct bench_kv *kv, uint32_t from, uint32_t to,
                     uint32_t cached, uint32_t *token)
{
    struct engine_segment s = {
        .tokens = prompt + from,
        .n_tokens = to - from,
        .position = from,
        .cached_tokens = cached,
        .want_token = token,
        .blocks = kv->blocks,
    };
    double start_us = bench_now_us();
    int rc = engine_step(b->engine, &s, 1, NULL, NULL, NULL);

    if (rc != 0)
        return rc;
    if (token)
        *token = s.token_out;
    return bench_now_us() - start_us;
}
