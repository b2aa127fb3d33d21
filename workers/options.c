/* The command line of conductor-worker. */
#include "workers/options.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/options.h"
#include "workers/engine/engine.h"
#include "workers/engine/model.h"
#include "workers/transfer/transports.h"

#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

static const struct option_usage usage = {
    .name = "conductor-worker",
    .synopsis = "--conductor HOST:PORT[,...] [OPTIONS]",
    .text = "Runs one engine: computes, keeps, fetches and sends KV blocks as "
            "a conductor orders.",
    .examples = "  conductor-worker --conductor 127.0.0.1:8081 --role prefill "
                "--name p1\n"
                "  conductor-worker --conductor 127.0.0.1:8081 --role decode "
                "--max-batch 32\n"
                "  conductor-worker --profile tiny.csv --model tiny\n",
};

static const char *role_name(size_t i)
{
    uint8_t role = (uint8_t)(PROTO_ROLE_PREFILL + i);

    return role <= PROTO_ROLE_BOTH ? proto_role_name(role) : NULL;
}

static const char *model_name(size_t i)
{
    const struct model_shape *shape = model_at(i);

    return shape ? shape->name : NULL;
}

static const char *const engines[] = {"cpu", "timed", "cuda", NULL};

static const char *const load_modes[] = {
    [PROTO_LOAD_AUTO] = "auto",           [PROTO_LOAD_COMPUTE] = "compute",
    [PROTO_LOAD_LOAD] = "load",           [PROTO_LOAD_BOTH] = "both",
    [PROTO_LOAD_LAYERWISE] = "layerwise", [PROTO_LOAD_COUNT] = NULL,
};

static const char *const puts_words[] = {
    [WORKER_PUTS_EVICTED] = "evicted", [WORKER_PUTS_ALL] = "all", NULL};

static const char *check_name(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~')
            n = 0;
    return n == 0 || n >= MSG_NAME_MAX
               ? "1 to 63 printable characters without blanks"
               : NULL;
}

/* Reads HOST:PORT[,HOST:PORT...]. Returns 0 or the exit status. */
static int take_conductors(struct worker_options *o, const char *list)
{
    char text[ADDRESS_HOST_MAX + 8];

    for (const char *at = list;; at++) {
        size_t n = strcspn(at, ",");
        struct address *a = &o->conductors[o->n_conductors];

        snprintf(text, sizeof(text), "%.*s", (int)(n < 300 ? n : 300), at);
        if (o->n_conductors == MSG_CONDUCTORS_MAX)
            return options_complain(usage.name, "--conductor: more than %d",
                                    MSG_CONDUCTORS_MAX);
        if (address_parse(text, a) || a->port == 0)
            return options_complain(usage.name,
                                    "--conductor %s: must be HOST:PORT, or "
                                    "several with commas in between",
                                    text);
        o->n_conductors++;
        at += n;
        if (!*at)
            return 0;
    }
}

/* Where an option's value is in struct worker_options; parse() adds that. */
#define AT(member) (void *)offsetof(struct worker_options, member)

static const struct option_spec all_options[] = {
    {"conductor", OPTION_TEXT, AT(conductor_list), "HOST:PORT[,...]", 0, 0,
     "address in the conductor's worker_listen, not its port for clients; "
     "with several conductors name all, or one that names the others"},
    {"listen", OPTION_ADDRESS, AT(listen), "HOST:PORT", 0, 0,
     "address for other workers; port 0 = any free port",
     .initial = "127.0.0.1:0"},
    {"secret-file", OPTION_TEXT, AT(secret_file), "FILE", 0, 0,
     "file with the secret shared with the conductor (its secret_file); "
     "required if other machines can connect"},
    {"tls-ca", OPTION_TEXT, AT(tls_ca), "FILE", 0, 0,
     "PEM with the certificate authorities trusted for the conductor; the "
     "worker then connects with TLS, and the conductor's "
     "worker_tls_certificate must name the host of --conductor"},
    {"name", OPTION_STRING, AT(name), "NAME", 0, 0,
     "name, unique among workers (default worker-PID)", .size = MSG_NAME_MAX,
     .check = check_name},
    {"role", OPTION_CHOICE, AT(role), "ROLE", PROTO_ROLE_PREFILL, 0,
     "prefill, decode or both", .choice = role_name, .initial = "both"},
    {"engine", OPTION_TEXT, AT(engine), "ENGINE", 0, 0,
     "cpu: a real transformer; timed: simulates the times of --cost-model; "
     "cuda: a transformer on the first visible card",
     .words = engines, .initial = "cpu"},
    {"model", OPTION_TEXT, AT(model), "NAME", 0, 0,
     "model shape: tiny, llama3-8b, llama3-70b, longalpaca-7b or "
     "longalpaca-13b",
     .choice = model_name, .initial = "tiny"},
    {"cost-model", OPTION_TEXT, AT(cost_model), "FILE", 0, 0,
     "cost model from conductor-fit; required by --engine timed"},
    {"block-tokens", OPTION_U32, AT(block_tokens), "N", ENGINE_MIN_BLOCK_TOKENS,
     ENGINE_MAX_BLOCK_TOKENS, "tokens per block, a multiple of 16",
     .step = ENGINE_MIN_BLOCK_TOKENS,
     .initial = TEXT(ENGINE_DEFAULT_BLOCK_TOKENS)},
    {"kv-mib", OPTION_U32, AT(kv_mib), "N", 1, 1 << 24,
     "memory for KV blocks in MiB (default 512)"},
    {"disk-path", OPTION_TEXT, AT(disk_path), "FILE", 0, 0,
     "also keep KV blocks in this file, created if missing; a restarted "
     "worker finds them again"},
    {"disk-mib", OPTION_U32, AT(disk_mib), "N", 1, 1 << 28,
     "size of --disk-path in MiB, allocated at once"},
    {"drain-ms", OPTION_U32, AT(drain_ms), "N", 0, 86400000,
     "time that requests get to finish after SIGTERM", .initial = "30000"},
    {"profile", OPTION_TEXT, AT(profile), "FILE.csv", 0, 0,
     "measure the engine's times into FILE.csv, for conductor-fit, and "
     "exit"},
    {"log-level", OPTION_CHOICE, AT(log_level), "LEVEL", 0, 0,
     "error, warn, info or debug", .choice = log_level_name, .initial = "info"},
    {"log-format", OPTION_CHOICE, AT(log_format), "FORMAT", 0, 0,
     "text or json", .choice = log_format_name, .initial = "text"},
    {"layers", OPTION_U32, AT(layers), "N", 1, 1024,
     "use only the first N layers (default all)", .section = "engine"},
    {"seed", OPTION_COUNT, AT(seed), "N", 0, (double)UINT64_MAX,
     "seed of the weights", .initial = "1"},
    {"step-tokens", OPTION_U32, AT(step_tokens), "N", 1, ENGINE_MAX_STEP_TOKENS,
     "most tokens in one step of the engine",
     .initial = TEXT(ENGINE_DEFAULT_STEP_TOKENS)},
    {"kv-blocks", OPTION_U32, AT(kv_blocks), "N", 1, 1 << 30,
     "memory for KV blocks, as a number of blocks; not with --kv-mib"},
    {"device-kv-mib", OPTION_U32, AT(device_kv_mib), "N", 1, 1 << 24,
     "cuda: part of that memory that is on the card, in MiB (default all "
     "that is free there)"},
    {"engine-speed", OPTION_NUMBER, AT(engine_speed), "X", 0.01, 100,
     "timed: speed relative to the cost model (default 1)", .initial = "1"},
    {"prefill-error-sigma", OPTION_NUMBER, AT(prefill_error_sigma), "X", 0, 2,
     "timed: sigma of a lognormal factor on each prefill's time, drawn "
     "from --seed and the request, as in cluster files (default 0)"},
    {"decode-error-sigma", OPTION_NUMBER, AT(decode_error_sigma), "X", 0, 2,
     "timed: sigma of such a factor on each decode step's time (default "
     "0)"},
    {"shared-store", OPTION_TEXT, AT(shared_store), "URL", 0, 0,
     "also keep KV blocks in a Redis or Valkey that all workers of the "
     "model read: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]",
     .section = "shared-store"},
    {"shared-store-mib", OPTION_U32, AT(shared_store_mib), "N", 1, 1 << 28,
     "limit of --shared-store over all workers, in MiB; give all workers "
     "the same"},
    {"shared-store-put", OPTION_CHOICE, AT(shared_store_put), "BLOCKS", 0, 0,
     "when blocks are put into --shared-store: all: as soon as they are "
     "held; evicted: before they can be evicted, so that at most a quarter "
     "of memory is not in the store (default evicted)",
     .words = puts_words},
    {"shared-store-ttl", OPTION_U32, AT(shared_store_ttl), "SECONDS", 1,
     31536000,
     "seconds after which an unused block is removed from --shared-store",
     .initial = "86400"},
    {"shared-store-timeout-ms", OPTION_U32, AT(shared_store_timeout_ms), "N",
     10, 60000,
     "--shared-store counts as down after this time without progress; its "
     "blocks are then computed",
     .initial = "1000"},
    {"shared-store-password-file", OPTION_TEXT, AT(shared_store_password_file),
     "FILE", 0, 0,
     "file with the password of --shared-store; other users of the machine "
     "can read a password in the URL"},
    {"shared-store-ca", OPTION_TEXT, AT(shared_store_ca), "FILE", 0, 0,
     "PEM with the certificate authorities trusted for a rediss:// store "
     "(TLS, needs hiredis 1.0 or later; default: the machine's)"},
    {"max-batch", OPTION_U32, AT(max_batch), "N", 1, 4096,
     "most requests that decode at once", .initial = "64", .section = "limits"},
    {"max-prefills", OPTION_U32, AT(max_prefills), "N", 1, 64,
     "most prefills that run at once; more than 1 helps if the engine "
     "computes large steps more efficiently",
     .initial = "1"},
    {"max-queue", OPTION_U32, AT(max_queue), "N", 1, 1024,
     "most prefills that may wait", .initial = "1024"},
    {"fetch-timeout-ms", OPTION_U32, AT(fetch_timeout_ms), "N", 1, 3600000,
     "compute a block itself if a peer does not send it within this time",
     .initial = "5000"},
    {"push-timeout-ms", OPTION_U32, AT(push_timeout_ms), "N", 1, 3600000,
     "give up on a decode worker that takes no KV for this time",
     .initial = "60000"},
    {"transports", OPTION_TEXT, AT(transports), "LIST", 0, 0,
     "transports for KV between workers, in order of preference: shm (same "
     "machine), rdma (network cards), tcp (always available, used last); "
     "two workers use the first that both have (default shm,tcp)",
     .initial = "shm,tcp", .section = "transfer"},
    {"streams", OPTION_U32, AT(streams), "N", 1, TRANSFER_STREAMS_MAX,
     "tcp: data connections to each worker (default 2)", .initial = "2"},
    {"rdma-devices", OPTION_TEXT, AT(rdma_devices), "LIST", 0, 0,
     "rdma: network cards to use, by their names in /sys/class/infiniband "
     "(default all)"},
    {"rdma-slice-kib", OPTION_U32, AT(rdma_slice_kib), "N", 4, 1048576,
     "rdma: size of the slices of a transfer, in KiB, a multiple of the "
     "page size (default 16)",
     .step = 4, .initial = "16"},
    {"load-mode", OPTION_CHOICE, AT(load_mode), "MODE", 0, 0,
     "how requests get cached blocks: auto: as the conductor plans; or for "
     "every request compute, load, both or layerwise",
     .words = load_modes},
    {"load-gbps", OPTION_NUMBER, AT(load_gbps), "X", 1e-6, 1e6,
     "limit loads to X Gbit/s in total, for experiments"},
};

static int parse(int argc, char **argv, struct worker_options *o, int *status)
{
    struct option_spec specs[sizeof(all_options) / sizeof(all_options[0])];

    memcpy(specs, all_options, sizeof(specs));
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
        specs[i].value = (char *)o + (size_t)specs[i].value;

    if (options_start(&usage, OPTION_TABLE(specs), argc, argv, status))
        return -1;
    *status = o->conductor_list ? take_conductors(o, o->conductor_list) : 0;
    return *status ? -1 : 0;
}

/* Checks that involve several options. Returns 0 or the exit status. */
static int check_together(const struct worker_options *o)
{
    if (o->max_batch > o->step_tokens)
        return options_complain(usage.name,
                                "--max-batch %u: must be at most "
                                "--step-tokens, which is %u",
                                o->max_batch, o->step_tokens);
    if (strcmp(o->engine, "timed") == 0 && !o->cost_model)
        return options_complain(usage.name,
                                "--engine timed: needs --cost-model FILE");
    if (o->kv_mib && o->kv_blocks)
        return options_complain(usage.name,
                                "--kv-mib %u and --kv-blocks %u: give only "
                                "one of them",
                                o->kv_mib, o->kv_blocks);
    if (transports_check(o->transports) < 0)
        return options_complain(
            usage.name,
            "--transports %s: each of shm, rdma and tcp once at "
            "most, with commas in between",
            o->transports);
    if (!o->disk_path != !o->disk_mib)
        return options_complain(usage.name, "--%s needs --%s",
                                o->disk_path ? "disk-path FILE" : "disk-mib N",
                                o->disk_path ? "disk-mib N" : "disk-path FILE");
    if (!o->shared_store != !o->shared_store_mib)
        return options_complain(
            usage.name, "--%s needs --%s",
            o->shared_store ? "shared-store URL" : "shared-store-mib N",
            o->shared_store ? "shared-store-mib N" : "shared-store URL");
    if (o->shared_store_password_file && !o->shared_store)
        return options_complain(usage.name, "--shared-store-password-file "
                                            "needs --shared-store URL");
    if (o->shared_store_ca && !o->shared_store)
        return options_complain(usage.name,
                                "--shared-store-ca needs --shared-store URL");
    if (o->profile || o->n_conductors)
        return 0;
    options_missing(usage.name, "--conductor HOST:PORT");
    return OPTIONS_EXIT_USAGE;
}

int worker_options_parse(int argc, char **argv, struct worker_options *o,
                         int *status)
{
    *o = (struct worker_options){.rdma_devices = ""};
    snprintf(o->name, sizeof(o->name), "worker-%d", (int)getpid());
    if (parse(argc, argv, o, status))
        return -1;
    *status = check_together(o);
    if (!o->kv_mib && !o->kv_blocks)
        o->kv_mib = 512;
    return *status == 0 ? 0 : -1;
}
