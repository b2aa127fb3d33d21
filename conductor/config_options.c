/* The option table, and the reference that is written from it. */
#include "conductor/config_options.h"

#include <stdio.h>
#include <string.h>

#include "conductor/config.h"
#include "conductor/core/step/queue.h"

#define AT(field) offsetof(struct config, field)

static const struct option_def options[] = {
    {"listen", OPTION_ADDRESS, AT(listen), "host:port", 0, 0, 0,
     "127.0.0.1:8080",
     "where clients reach the HTTP API; port 0 takes any free one"},
    {"worker_listen", OPTION_ADDRESS, AT(worker_listen), "host:port", 0, 0, 0,
     "127.0.0.1:8081", "where workers register; port 0 takes any free one"},
    {"model", OPTION_STRING, AT(model), "", 1, 63, 0, "tiny",
     "the served model; a worker of another model is refused"},
    {"block_tokens", OPTION_INT, AT(block_tokens), "tokens", 16, 512, 16, "256",
     "tokens in one KV block; a worker of another size is refused"},
    {"policy", OPTION_POLICY, AT(policy), "", 0, 0, 0, "plan",
     "how a request's prefill instance is chosen: random, round_robin, "
     "least_loaded, local_cache, global_cache or plan"},
    {"kvcache_balancing_threshold", OPTION_NUMBER,
     AT(kvcache_balancing_threshold), "ratio", 1, 1e6, 0, "1",
     "global_cache: fetch blocks when the best match elsewhere is longer than "
     "the local one by more than this factor"},
    {"queue_order", OPTION_QUEUE_ORDER, AT(queue_order), "", 0, 0, 0,
     QUEUE_ORDER_DEFAULT,
     "the order in which every worker serves its prefills, and by which waits "
     "are estimated: fifo, fifo_strict or uncached_first"},
    {"cost_model", OPTION_STRING, AT(cost_model), "file", 0, 0, 0, "",
     "the model that conductor-fit wrote; needed for every policy"},
    {"seed", OPTION_INT, AT(seed), "", 0, 9e15, 0, "1",
     "seed of the random policy"},
    {"slo_ttft_ms", OPTION_INT, AT(slo_ttft_ms), "ms", 0, 86400000, 0, "0",
     "default limit on the time to first token; 0 = none"},
    {"slo_tbt_ms", OPTION_INT, AT(slo_tbt_ms), "ms", 0, 86400000, 0, "0",
     "default limit on the time between tokens; 0 = none"},
    {"max_body_bytes", OPTION_INT, AT(max_body_bytes), "bytes", 1024, 1 << 28,
     0, "16777216", "longest request body; a longer one is answered 413"},
    {"max_body_total_bytes", OPTION_INT, AT(max_body_total_bytes), "bytes",
     1 << 20, 1e12, 0, "1073741824",
     "request bodies being received, all together; what does not fit is "
     "answered 503"},
    {"max_connections", OPTION_INT, AT(max_connections), "", 1, 100000, 0,
     "4096", "open client connections"},
    {"max_in_flight", OPTION_INT, AT(max_in_flight), "requests", 1, 1000000, 0,
     "4096", "requests between arrival and last token; more are answered 429"},
    {"max_instances", OPTION_INT, AT(max_instances), "instances", 1, 4096, 0,
     "256", "registered workers; more are refused"},
    {"max_queue_per_instance", OPTION_INT, AT(max_queue_per_instance),
     "requests", 1, 1023, 0, "512", "prefills waiting on one instance"},
    {"index_max_blocks", OPTION_INT, AT(index_max_blocks), "blocks", 1024,
     1000000000, 0, "4194304", "distinct blocks that the prefix index knows"},
    {"heartbeat_ms", OPTION_INT, AT(heartbeat_ms), "ms", 10, 60000, 0, "500",
     "how often a worker reports its state"},
    {"worker_timeout_ms", OPTION_INT, AT(worker_timeout_ms), "ms", 100, 600000,
     0, "5000",
     "a worker that is silent for this long is taken as gone; at least two "
     "heartbeat_ms"},
    {"max_retries", OPTION_INT, AT(max_retries), "", 0, 100, 0, "3",
     "other choices tried when a worker fails before the first token"},
    {"link_mbps", OPTION_INT, AT(link_mbps), "Mbit/s", 1, 10000000, 0, "10000",
     "first guess of what a link between workers carries; measured later"},
    {"disk_mbps", OPTION_INT, AT(disk_mbps), "Mbit/s", 1, 10000000, 0, "8000",
     "first guess of what a worker reads from its disk; measured later"},
    {"explain_requests", OPTION_INT, AT(explain_requests), "requests", 0, 10000,
     0, "256", "last requests that GET /admin/explain/ID tells of; 0 = none"},
    {"log_level", OPTION_LOG_LEVEL, AT(log_level), "", 0, 0, 0, "info",
     "error, warn, info or debug"},
};

#define N_OPTIONS (sizeof(options) / sizeof(options[0]))

const struct option_def *config_option(size_t i)
{
    return i < N_OPTIONS ? &options[i] : NULL;
}

const struct option_def *config_option_find(const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

bool config_option_is_text(const struct option_def *o)
{
    return o->type < OPTION_INT;
}

static void reference_range(FILE *out, const struct option_def *o)
{
    if (o->max > 0 && config_option_is_text(o))
        fprintf(out, "string, %.0f to %.0f bytes", o->min, o->max);
    else if (config_option_is_text(o))
        fputs("string", out);
    else
        fprintf(out, "%s, %.10g to %.10g",
                o->type == OPTION_INT ? "integer" : "number", o->min, o->max);
    if (o->step > 0)
        fprintf(out, ", multiple of %.10g", o->step);
}

void config_reference(FILE *out)
{
    fputs("# Configuration\n\n"
          "One JSON object; every option may be left out. Written by\n"
          "`conductor --config-reference`.\n\n"
          "| option | type and range | unit | default | meaning |\n"
          "|---|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option_def *o = &options[i];

        fprintf(out, "| `%s` | ", o->name);
        reference_range(out, o);
        fprintf(out, " | %s | `%s` | %s |\n", o->unit,
                *o->initial ? o->initial : "\"\"", o->help);
    }
}
