/* The command line of conductor-worker: one table drives parsing; every bad
 * value is refused with its option and its range. */
#include "workers/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workers/engine/engine.h"

#define QUEUE_MAX 1024
#define GBPS_MIN 1e-6
#define GBPS_MAX 1e6

enum kind {
    OPT_FLAG,
    OPT_U32,
    OPT_U64,
    OPT_TEXT,
    OPT_ADDRESS,
    OPT_ROLE,
    OPT_NAME,
    OPT_LEVEL,
    OPT_ENGINE,
    OPT_LOAD_MODE,
    OPT_GBPS
};

struct option_row {
    const char *name;
    enum kind kind;
    size_t offset; /* of the field in worker_options */
    uint64_t min, max;
};

#define FIELD(f) offsetof(struct worker_options, f)

static const struct option_row rows[] = {
    {"help", OPT_FLAG, FIELD(help), 0, 0},
    {"version", OPT_FLAG, FIELD(version), 0, 0},
    {"conductor", OPT_ADDRESS, FIELD(conductor), 1, 65535},
    {"listen", OPT_ADDRESS, FIELD(listen), 0, 65535},
    {"name", OPT_NAME, FIELD(name), 0, 0},
    {"role", OPT_ROLE, FIELD(role), 0, 0},
    {"engine", OPT_ENGINE, FIELD(engine), 0, 0},
    {"model", OPT_TEXT, FIELD(model), 0, 0},
    {"layers", OPT_U32, FIELD(layers), 1, 1024},
    {"seed", OPT_U64, FIELD(seed), 0, UINT64_MAX},
    {"device-kv-mib", OPT_U32, FIELD(device_kv_mib), 1, 1u << 24},
    {"kv-blocks", OPT_U32, FIELD(kv_blocks), 1, 1u << 30},
    {"kv-mib", OPT_U32, FIELD(kv_mib), 1, 1u << 24},
    {"disk-path", OPT_TEXT, FIELD(disk_path), 0, 0},
    {"disk-mib", OPT_U32, FIELD(disk_mib), 1, 1u << 28},
    {"block-tokens", OPT_U32, FIELD(block_tokens), ENGINE_MIN_BLOCK_TOKENS,
     ENGINE_MAX_BLOCK_TOKENS},
    {"step-tokens", OPT_U32, FIELD(step_tokens), 1, ENGINE_MAX_STEP_TOKENS},
    {"max-batch", OPT_U32, FIELD(max_batch), 1, 4096},
    {"max-prefills", OPT_U32, FIELD(max_prefills), 1, 64},
    {"max-queue", OPT_U32, FIELD(max_queue), 1, QUEUE_MAX},
    {"fetch-timeout-ms", OPT_U32, FIELD(fetch_timeout_ms), 1, 3600000},
    {"push-timeout-ms", OPT_U32, FIELD(push_timeout_ms), 1, 3600000},
    {"load-mode", OPT_LOAD_MODE, FIELD(load_mode), 0, 0},
    {"load-gbps", OPT_GBPS, FIELD(load_gbps), 0, 0},
    {"cost-model", OPT_TEXT, FIELD(cost_model), 0, 0},
    {"profile", OPT_TEXT, FIELD(profile), 0, 0},
    {"log-level", OPT_LEVEL, FIELD(log_level), 0, 0},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

const char *worker_options_help(void)
{
    return "Usage: conductor-worker --conductor HOST:PORT [options]\n"
           "\n"
           "One engine process: computes, keeps, fetches and sends KV blocks "
           "as a conductor\nsays.\n"
           "\n"
           "  --conductor HOST:PORT  the conductor's worker_listen, not its "
           "port for clients\n"
           "  --listen HOST:PORT     for other workers; port 0: any "
           "(127.0.0.1:0)\n"
           "  --name NAME            unique among workers (worker-PID)\n"
           "  --role ROLE            prefill, decode or both (both)\n"
           "  --engine ENGINE        cpu: a real transformer; timed: simulates "
           "one by the\n"
           "                         time that --cost-model says; cuda: a "
           "transformer\n"
           "                         on the first visible card (cpu)\n"
           "  --model NAME           shape of the model: tiny, llama3-8b, "
           "llama3-70b,\n"
           "                         longalpaca-7b or longalpaca-13b (tiny)\n"
           "  --layers N             only the first N layers (all)\n"
           "  --seed N               of the weights (1)\n"
           "  --cost-model FILE      from conductor-fit; needed by timed\n"
           "  --kv-mib N             memory for KV blocks in MiB (512)\n"
           "  --kv-blocks N          the same in blocks; not both\n"
           "  --device-kv-mib N      of these, on the card of engine cuda in "
           "MiB (all that\n"
           "                         is free there)\n"
           "  --disk-path FILE       keep KV blocks in this file as well, made "
           "if it is not\n"
           "                         there; found again after a restart\n"
           "  --disk-mib N           its size in MiB, allocated at once\n"
           "  --block-tokens N       tokens of a block, a multiple of 16 "
           "(256)\n"
           "  --step-tokens N        most tokens of one step (512)\n"
           "  --max-batch N          most requests that decode at once (64)\n"
           "  --max-prefills N       most prefills under way at once (1); more "
           "fill the\n"
           "                         steps of an engine that is faster in "
           "bulk\n"
           "  --max-queue N          most requests that wait (1024)\n"
           "  --fetch-timeout-ms N   compute what a peer does not send (5000)\n"
           "  --push-timeout-ms N    give up on a decode worker (60000)\n"
           "  --load-mode MODE       auto: as the conductor plans; or for all "
           "requests\n"
           "                         compute, load, both or layerwise (auto)\n"
           "  --load-gbps X          throttle loads to X Gbit/s in all, for "
           "experiments\n"
           "  --profile FILE.csv     time the engine over a grid, and exit\n"
           "  --log-level LEVEL      error, warn, info or debug (info)\n"
           "  --help                 this text\n"
           "  --version              print the version\n"
           "\n"
           "Examples:\n"
           "  conductor-worker --conductor 127.0.0.1:8081 --role prefill "
           "--name p1\n"
           "  conductor-worker --conductor 127.0.0.1:8081 --role decode "
           "--max-batch 32\n"
           "  conductor-worker --profile tiny.csv --model tiny\n";
}

/* Fails with "--name value: what it must be". */
static int bad(char *err, size_t err_bytes, const char *name, const char *value,
               const char *must)
{
    snprintf(err, err_bytes, "--%s %.200s: must be %s", name, value, must);
    return -EINVAL;
}

static int parse_number(const char *text, uint64_t min, uint64_t max,
                        uint64_t *out)
{
    char *end;

    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || v < min || v > max)
        return -EINVAL;
    *out = v;
    return 0;
}

static int put_number(const struct option_row *row, const char *value,
                      void *field, char *err, size_t err_bytes)
{
    char must[96];
    uint64_t v;

    if (parse_number(value, row->min, row->max, &v) < 0) {
        snprintf(must, sizeof(must), "a number from %llu to %llu",
                 (unsigned long long)row->min, (unsigned long long)row->max);
        return bad(err, err_bytes, row->name, value, must);
    }
    if (row->kind == OPT_U32)
        *(uint32_t *)field = (uint32_t)v;
    else
        *(uint64_t *)field = v;
    return 0;
}

/* HOST:PORT or [HOST]:PORT. */
static int put_address(const struct option_row *row, const char *value,
                       struct worker_address *out, char *err, size_t err_bytes)
{
    const char *colon = strrchr(value, ':');
    uint64_t port;

    if (!colon || colon == value ||
        parse_number(colon + 1, row->min, row->max, &port) < 0)
        return bad(err, err_bytes, row->name, value,
                   row->min ? "HOST:PORT with a port from 1 to 65535"
                            : "HOST:PORT with a port from 0 to 65535");
    size_t n = (size_t)(colon - value);
    if (value[0] == '[' && n > 2 && colon[-1] == ']') {
        value++;
        n -= 2;
    }
    if (n >= MSG_HOST_MAX)
        return bad(err, err_bytes, row->name, value,
                   "HOST:PORT with a host of at most 255 bytes");
    memcpy(out->host, value, n);
    out->host[n] = '\0';
    out->port = (uint16_t)port;
    return 0;
}

static int put_name(const char *value, char *name, char *err, size_t err_bytes)
{
    size_t n = strlen(value);

    for (size_t i = 0; i < n; i++)
        if (value[i] <= ' ' || value[i] > '~')
            n = 0;
    if (n == 0 || n >= MSG_NAME_MAX)
        return bad(err, err_bytes, "name", value,
                   "1 to 63 printable characters without blanks");
    memcpy(name, value, n + 1);
    return 0;
}

static int put_role(const char *value, uint8_t *role, char *err,
                    size_t err_bytes)
{
    for (uint8_t r = PROTO_ROLE_PREFILL; r <= PROTO_ROLE_BOTH; r++) {
        if (strcmp(value, proto_role_name(r)) == 0) {
            *role = r;
            return 0;
        }
    }
    return bad(err, err_bytes, "role", value, "prefill, decode or both");
}

static int put_load_mode(const char *value, uint8_t *mode, char *err,
                         size_t err_bytes)
{
    static const char *const names[PROTO_LOAD_COUNT] = {
        [PROTO_LOAD_AUTO] = "auto",           [PROTO_LOAD_COMPUTE] = "compute",
        [PROTO_LOAD_LOAD] = "load",           [PROTO_LOAD_BOTH] = "both",
        [PROTO_LOAD_LAYERWISE] = "layerwise",
    };

    for (uint8_t i = 0; i < PROTO_LOAD_COUNT; i++) {
        if (strcmp(value, names[i]) == 0) {
            *mode = i;
            return 0;
        }
    }
    return bad(err, err_bytes, "load-mode", value,
               "auto, compute, load, both or layerwise");
}

static int put_gbps(const char *value, double *gbps, char *err,
                    size_t err_bytes)
{
    char *end;
    double v = strtod(value, &end);

    /* Also not a number, so much that it is no limit, so little that nothing
     * would ever come. */
    if (end == value || *end || !(v >= GBPS_MIN) || v > GBPS_MAX)
        return bad(err, err_bytes, "load-gbps", value,
                   "a number of Gbit/s from 1e-6 to 1e6");
    *gbps = v;
    return 0;
}

static int put(const struct option_row *row, const char *value,
               struct worker_options *o, char *err, size_t err_bytes)
{
    void *field = (char *)o + row->offset;

    switch (row->kind) {
    case OPT_FLAG:
        *(bool *)field = true;
        return 0;
    case OPT_U32:
    case OPT_U64:
        return put_number(row, value, field, err, err_bytes);
    case OPT_ADDRESS:
        return put_address(row, value, field, err, err_bytes);
    case OPT_NAME:
        return put_name(value, field, err, err_bytes);
    case OPT_ROLE:
        return put_role(value, field, err, err_bytes);
    case OPT_ENGINE:
        if (strcmp(value, "cpu") && strcmp(value, "timed") &&
            strcmp(value, "cuda"))
            return bad(err, err_bytes, row->name, value, "cpu, timed or cuda");
        *(const char **)field = value;
        return 0;
    case OPT_LEVEL:
        if (log_level_parse(value, field) < 0)
            return bad(err, err_bytes, row->name, value,
                       "error, warn, info or debug");
        return 0;
    case OPT_LOAD_MODE:
        return put_load_mode(value, field, err, err_bytes);
    case OPT_GBPS:
        return put_gbps(value, field, err, err_bytes);
    case OPT_TEXT:
        if (!*value)
            return bad(err, err_bytes, row->name, value, "not empty");
        *(const char **)field = value;
        return 0;
    }
    return -EINVAL;
}

static void set_defaults(struct worker_options *o)
{
    *o = (struct worker_options){
        .listen = {.host = "127.0.0.1"},
        .role = PROTO_ROLE_BOTH,
        .engine = "cpu",
        .model = "tiny",
        .seed = 1,
        .block_tokens = ENGINE_DEFAULT_BLOCK_TOKENS,
        .step_tokens = ENGINE_DEFAULT_STEP_TOKENS,
        .max_batch = 64,
        .max_prefills = 1,
        .max_queue = QUEUE_MAX,
        .fetch_timeout_ms = 5000,
        .push_timeout_ms = 60000,
        .log_level = LOG_INFO,
    };
    snprintf(o->name, sizeof(o->name), "worker-%d", (int)getpid());
}

/* What no single option can tell. */
static int check_together(const struct worker_options *o, char *err,
                          size_t err_bytes)
{
    char value[16];

    if (o->block_tokens % ENGINE_MIN_BLOCK_TOKENS) {
        snprintf(value, sizeof(value), "%u", o->block_tokens);
        return bad(err, err_bytes, "block-tokens", value, "a multiple of 16");
    }
    if (o->max_batch > o->step_tokens) {
        snprintf(err, err_bytes,
                 "--max-batch %u: must be at most --step-tokens, which is %u",
                 o->max_batch, o->step_tokens);
        return -EINVAL;
    }
    if (strcmp(o->engine, "timed") == 0 && !o->cost_model) {
        snprintf(err, err_bytes, "--engine timed: needs --cost-model FILE");
        return -EINVAL;
    }
    if (o->kv_mib && o->kv_blocks) {
        snprintf(err, err_bytes,
                 "--kv-mib %u and --kv-blocks %u: give only one of them",
                 o->kv_mib, o->kv_blocks);
        return -EINVAL;
    }
    if (!o->disk_path != !o->disk_mib) {
        snprintf(err, err_bytes, "--%s needs --%s",
                 o->disk_path ? "disk-path FILE" : "disk-mib N",
                 o->disk_path ? "disk-mib N" : "disk-path FILE");
        return -EINVAL;
    }
    if (!o->profile && !o->conductor.port) {
        snprintf(err, err_bytes,
                 "--conductor HOST:PORT is missing; try --help");
        return -EINVAL;
    }
    return 0;
}

int worker_options_parse(int argc, char **argv, struct worker_options *o,
                         char *err, size_t err_bytes)
{
    struct option table[N_ROWS + 1] = {{0}};
    int row;
    int c;

    set_defaults(o);
    for (size_t i = 0; i < N_ROWS; i++)
        table[i] = (struct option){
            .name = rows[i].name,
            .has_arg =
                rows[i].kind == OPT_FLAG ? no_argument : required_argument,
        };
    optind = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":", table, &row)) == 0) {
        int rc = put(&rows[row], optarg, o, err, err_bytes);

        if (rc < 0 || o->help || o->version)
            return rc;
    }
    if (c != -1 || optind < argc) {
        const char *what = argv[c == -1 ? optind : optind - 1];

        snprintf(err, err_bytes,
                 c == ':' ? "%.200s: needs a value; try --help"
                          : "%.200s: no such option; try --help",
                 what);
        return -EINVAL;
    }
    int rc = check_together(o, err, err_bytes);
    if (!o->kv_mib && !o->kv_blocks)
        o->kv_mib = 512;
    return rc;
}
