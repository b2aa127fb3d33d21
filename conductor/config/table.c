/* The table of the daemon's options: what each is called, where its value is,
 * and what it may be. It drives everything else. */
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "conductor/config/internal.h"
#include "conductor/config/policy_text.h"
#include "conductor/core/step/queue.h"

static const char *check_policy_options(const char *text)
{
    struct policy_settings settings;
    char error[CONFIG_ERROR_MAX];

    return config_settings(text, &settings, error, sizeof(error))
               ? "NAME=NUMBER, or several separated by commas"
               : NULL;
}

static const char *const pools[] = {"split", "aggregated", NULL};
static const char *const keys[] = {"open", "required", NULL};
static const char *const off_on[] = {"off", "on", NULL};

/* A row's name, kind, and where its value is in struct config, which
 * config_table() adds. */
#define ROW(member, kind) #member, kind, (void *)offsetof(struct config, member)
#define STRING(member) ROW(member, OPTION_STRING)
#define COUNT(member) ROW(member, OPTION_COUNT)
#define NUMBER(member) ROW(member, OPTION_NUMBER)
#define CHOICE(member) ROW(member, OPTION_CHOICE)

/* Without `initial` a string is empty; without `size` it has
 * CONFIG_STRING_MAX. */
static const struct option_spec all_options[] = {
    {STRING(listen), "host:port", 0, 0,
     "address of the HTTP API for clients; port 0 = any free port, host `*` = "
     "every address",
     .initial = "127.0.0.1:8080", .check = option_check_address},
    {STRING(worker_listen), "host:port", 0, 0,
     "address where native workers register; port 0 = any free port, empty = "
     "no native workers. The default is empty if engines or engines_file is "
     "set",
     .initial = "127.0.0.1:8081", .check = option_check_optional},
    {STRING(secret_file), "file", 0, 0,
     "file with the secret that workers must prove to know (their "
     "--secret-file); required if other machines can reach worker_listen"},
    {STRING(model), "", 1, 63,
     "model that native workers serve; a worker with another model is refused",
     .initial = "tiny", .check = option_check_name},
    {COUNT(block_tokens), "tokens", 16, 512,
     "tokens per KV block; a worker with another block size is refused",
     .initial = "256", .step = 16},
    {CHOICE(pool), "", 0, 0,
     "where native workers decode a request: split = on the worker that "
     "decodes it fastest, aggregated = on the worker that prefilled it "
     "(workers of role both); one of:",
     .initial = "split", .words = pools},
    {COUNT(step_tokens), "tokens", 0, 1000000,
     "tokens per step of an engine that prefills and decodes; used to estimate "
     "prefills beside decodes. Set it to vLLM's --max-num-batched-tokens, "
     "SGLang's --chunked-prefill-size or a worker's --step-tokens; 0 = a "
     "prompt runs in one step, and nothing interrupts it",
     .initial = "2048"},
    {STRING(policy), "", 0, 0, "how a request's prefill instance is chosen:",
     .initial = POLICY_DEFAULT, .choice = schedule_policy_name},
    {STRING(policy_options), "", 0, 0,
     "options of the policy by name; `conductor --help policy-options` lists "
     "them",
     .check = check_policy_options},
    {NUMBER(kvcache_balancing_threshold), "ratio", 1, 1e6,
     "default of the option of this name of the policy global_cache",
     .initial = "1"},
    {STRING(queue_order), "", 0, 0,
     "order in which a worker runs its waiting prefills, also used to predict "
     "waits; some policies set it themselves; one of:",
     .initial = QUEUE_ORDER_DEFAULT, .choice = queue_order_name},
    {STRING(cost_model), "file", 0, 0,
     "cost model written by conductor-fit, for native workers that "
     "worker_costs does not list; the policies local_cache, global_cache and "
     "plan need one"},
    {COUNT(seed), "", 0, 9e15,
     "default of the option of this name of the policy random", .initial = "1"},
    {COUNT(slo_ttft_ms), "ms", 0, 86400000,
     "default limit on the time to first token; 0 = none", .reloads = true,
     .initial = "0"},
    {COUNT(slo_tbt_ms), "ms", 0, 86400000,
     "default limit on the time between tokens; 0 = none", .reloads = true,
     .initial = "0"},
    {COUNT(max_body_bytes), "bytes", 1024, 1 << 28,
     "longest request body; a longer one is answered 413",
     .initial = "16777216"},
    {COUNT(max_body_total_bytes), "bytes", 1 << 20, 1e12,
     "total size of the request bodies being received; a body that does not "
     "fit is answered 503, and one client may use at most four times what is "
     "free. Replies of prefill engines have a second budget of this size",
     .initial = "1073741824"},
    {COUNT(max_output_total_bytes), "bytes", 1 << 16, 1e12,
     "total memory for answers that clients have not read yet. Above half of "
     "it the conductor pauses reading from engines. One client may use at most "
     "four times what is free; beyond that its streams are cut, and its long "
     "answers become 503",
     .initial = "268435456"},
    {COUNT(max_connections), "", 1, 100000,
     "most open client connections; lowered at startup if the limit on open "
     "files is too low. One client may have at most four times as many as are "
     "free; when full, idle connections of the client with the most are closed "
     "for others",
     .initial = "4096"},
    {COUNT(max_in_flight), "requests", 1, 1000000,
     "most requests in flight, from arrival to last token; further ones are "
     "answered 429",
     .initial = "4096"},
    {COUNT(max_instances), "instances", 1, 4096,
     "most native workers that can register, and most engines that can be "
     "configured; more are refused",
     .initial = "256"},
    {COUNT(max_queue_per_instance), "requests", 1, 1023,
     "most prefills that may wait on one instance", .initial = "512"},
    {COUNT(index_mib), "MiB", 1, 65536,
     "memory of the prefix index, which records the blocks that instances "
     "hold: about 24 bytes a block. A quarter (the hash table) is in use from "
     "the start, the rest as blocks are recorded",
     .initial = "96"},
    {COUNT(heartbeat_ms), "ms", 10, 60000,
     "time between two reports of a worker's state", .initial = "500"},
    {COUNT(worker_timeout_ms), "ms", 100, 600000,
     "a worker that is silent for this long counts as gone; at least twice "
     "heartbeat_ms",
     .initial = "5000"},
    {COUNT(request_timeout_ms), "ms", 100, 86400000,
     "a request fails when its worker or engine reports nothing about it for "
     "this long, whatever else it reports; set it longer than any wait in an "
     "instance's queue, and than any answer that is not streamed takes",
     .reloads = true, .initial = "600000"},
    {COUNT(max_retries), "", 0, 100,
     "further attempts when an instance fails before the first token",
     .reloads = true, .initial = "3"},
    {COUNT(engine_health_ms), "ms", 10, 600000,
     "approximate time between two health checks of an engine", .reloads = true,
     .initial = "1000"},
    {COUNT(engine_tokenize_ms), "ms", 0, 60000,
     "time limit for an engine to tokenize a prompt; used only where the index "
     "follows KV events; 0 = engines are not asked to tokenize",
     .reloads = true, .initial = "200"},
    {COUNT(token_cache_mib), "MiB", 0, 65536,
     "memory per model for the tokens of prompts that engines have tokenized, "
     "so that no prompt is tokenized twice; 0 = none are kept",
     .initial = "64"},
    {COUNT(keepalive_ms), "ms", 0, 600000,
     "time between comments sent to the client of a streamed request until its "
     "answer begins, so that proxies keep the connection open; after the first "
     "comment an error is an event in the stream, no longer an HTTP status; 0 "
     "= no comments",
     .reloads = true, .initial = "0"},
    {STRING(cache_salt_header), "header", 0, 0,
     "request header, set by a gateway, whose value replaces the client's "
     "cache_salt in every prompt: tenants cannot reuse each other's blocks; "
     "empty = none",
     .check = option_check_header},
    {STRING(priority_header), "header", 0, 0,
     "request header whose value replaces the client's priority in requests to "
     "engines; empty = none",
     .check = option_check_header},
    {STRING(tenant_header), "header", 0, 0,
     "request header that names the tenant, for fair shares and priorities (of "
     "authorization, the part after Bearer); empty = all requests belong to "
     "one tenant",
     .initial = "authorization", .check = option_check_tenant_header},
    {CHOICE(api_keys), "", 0, 0,
     "clients that may send requests: open = all that reach listen; required = "
     "clients with a key in tenants_file, within their tenant's limits; "
     "tenants then cannot reuse each other's cached blocks; one of:",
     .reloads = true, .initial = "open", .words = keys},
    {STRING(tenants_file), "file", 0, 0,
     "JSON file with tenants' names and weights, described in the section "
     "tenants of docs/reference/configuration.md; values of tenant_header "
     "outside the file form one tenant; empty = each value is a tenant of "
     "weight 1",
     .reloads = true},
    {STRING(cors_origins), "origins", 0, 0,
     "origins whose web pages may send requests (https://HOST[:PORT], "
     "separated by commas; * = all): the conductor then answers preflight "
     "requests (OPTIONS) of browsers and drops the CORS headers of engines; "
     "/admin is never included. Empty = none, or, while api_keys is open, the "
     "origins that an engine allows",
     .reloads = true, .check = option_check_origins},
    {COUNT(max_tickets), "tickets", 1, 1000000,
     "open tickets per model. A ticket stands for a request that another "
     "gateway sends to the engine chosen by `/v1/schedule`. One tenant may "
     "hold at most four times as many as are free. Each counts for "
     "max_in_flight, too",
     .reloads = true, .initial = "2048"},
    {COUNT(ticket_timeout_ms), "ms", 10, 86400000,
     "a ticket ends when its gateway reports nothing about it for this long; "
     "if the gateway never reports, set it to about the duration of an answer",
     .reloads = true, .initial = "120000"},
    {COUNT(engine_timeout_ms), "ms", 10, 600000,
     "time limit for connecting to an engine, and for its answer to a health "
     "check",
     .initial = "2000"},
    {COUNT(engine_dns_ms), "ms", 100, 3600000,
     "approximate time between two DNS look-ups of an engine with dns",
     .initial = "5000"},
    {COUNT(engine_drain_ms), "ms", 0, 86400000,
     "time that a removed engine gets to finish its requests; then requests "
     "without an answer are scheduled elsewhere, and the others are cut off; 0 "
     "= no limit",
     .reloads = true, .initial = "600000"},
    {STRING(engines_file), "file", 0, 0,
     "JSON file with further engines, in a member `engines` like that of "
     "the configuration; read again when it changes"},
    {STRING(name_server), "host:port", 0, 0,
     "name server that looks up engines' hosts; empty = the name servers of "
     "/etc/resolv.conf",
     .check = option_check_optional},
    {COUNT(drain_wait_ms), "ms", 0, 3600000,
     "when the conductor is stopped, /ready answers not ready for this long "
     "while requests are still served, so that load balancers send elsewhere",
     .reloads = true, .initial = "0"},
    {COUNT(drain_limit_ms), "ms", 0, 86400000,
     "after drain_wait_ms, new requests are refused and running ones get this "
     "long to end; requests still running then get an error",
     .reloads = true, .initial = "30000"},
    {STRING(admin_listen), "host:port", 0, 0,
     "separate address for /admin, /metrics, the KV-indexer API, /health and "
     "/ready; `listen` then has only /v1, /health and /ready, and busy clients "
     "there do not block this address. If other machines can reach it, "
     "admin_key_file is required; empty = `listen` has all",
     .check = option_check_optional},
    {STRING(admin_key_file), "file", 0, 0,
     "file with the key required for changes over /admin, and with "
     "admin_listen for all of /admin; empty = changes are accepted from this "
     "machine only",
     .reloads = true},
    {STRING(tls_certificate), "file", 0, 0,
     "PEM with the certificate of `listen`, followed by its intermediate "
     "certificates; clients must then use https. A reload reads it again, for "
     "new connections; empty = http",
     .reloads = true},
    {STRING(tls_key), "file", 0, 0,
     "PEM with the private key of tls_certificate, without a passphrase",
     .reloads = true},
    {STRING(worker_tls_certificate), "file", 0, 0,
     "PEM with the certificate of worker_listen, followed by its intermediate "
     "certificates; workers must then use TLS and trust it (their --tls-ca), "
     "and secret_file is proven within TLS; empty = no TLS",
     .reloads = true},
    {STRING(worker_tls_key), "file", 0, 0,
     "PEM with the private key of worker_tls_certificate", .reloads = true},
    {CHOICE(admin_tls), "", 0, 0,
     "whether admin_listen uses TLS, with tls_certificate; one of:",
     .reloads = true, .initial = "off", .words = off_on},
    {COUNT(link_mbps), "Mbit/s", 1, 10000000,
     "first estimate of the bandwidth of a link between workers; measured "
     "later",
     .initial = "10000"},
    {COUNT(disk_mbps), "Mbit/s", 1, 10000000,
     "first estimate of the rate at which a worker reads its disk; measured "
     "later",
     .initial = "8000"},
    {COUNT(shared_store_mbps), "Mbit/s", 1, 10000000,
     "first estimate of the rate at which a worker reads the shared store; "
     "measured later",
     .initial = "8000"},
    {COUNT(correction_ms), "ms", 1, 3600000,
     "how fast predictions follow an instance's observed speed: 63 % of a "
     "change is adopted after this much predicted prefill time; set it to ten "
     "typical prefills or more",
     .initial = "60000"},
    {COUNT(explain_requests), "requests", 0, 10000,
     "number of recent requests that GET /admin/explain/ID can explain; 0 = "
     "none",
     .initial = "256"},
    {STRING(access_log), "file", 0, 0,
     "file that gets one line of JSON for each ended request; \"-\" = standard "
     "output; reopened on reload; empty = no log",
     .reloads = true},
    {COUNT(access_log_blocks), "", 0, 1,
     "whether access_log lists the prompt's blocks (hash_ids), so that "
     "conductor-replay can read it as a trace",
     .reloads = true, .initial = "0"},
    {STRING(otlp_endpoint), "URL", 0, 0,
     "URL that receives the spans of requests (OpenTelemetry, OTLP over HTTP "
     "in JSON): http://HOST:PORT/v1/traces; empty = no spans",
     .reloads = true, .check = option_check_otlp},
    {NUMBER(otlp_sample_ratio), "ratio", 0, 1,
     "share of requests whose spans are sent; a client's traceparent overrides "
     "it",
     .reloads = true, .initial = "1"},
    {STRING(state), "", 0, 0,
     "where conductors in front of the same instances share their state: "
     "memory = nowhere, for a single conductor; "
     "redis://[:PASSWORD@]HOST:PORT[,HOST:PORT...][/DATABASE], or "
     "redis+sentinel://HOST:PORT[,...]/NAME; rediss in place of redis uses "
     "TLS, if the conductor was built with hiredis 1.0 or later",
     .initial = "memory", .size = CONFIG_URL_MAX},
    {STRING(state_ca_file), "file", 0, 0,
     "PEM with the certificate authorities trusted for a rediss:// URL in "
     "state; empty = the machine's"},
    {STRING(worker_address), "host:port", 0, 0,
     "address of worker_listen that other conductors give to workers; empty = "
     "the host of worker_listen, or, if that is every address, the local "
     "address of the connection to Redis",
     .check = option_check_optional},
    {COUNT(state_lease_ms), "ms", 300, 60000,
     "how long a silent conductor keeps its lease; then its bookings are "
     "released, and if it led, another conductor leads",
     .initial = "3000"},
    {CHOICE(log_level), "", 0, 0, "least severe level to log:", .reloads = true,
     .initial = "info", .choice = log_level_name},
    {CHOICE(log_format), "", 0, 0,
     "format of log lines: text, or JSON objects with time, level, program and "
     "message; one of:",
     .reloads = true, .initial = "text", .choice = log_format_name},
};

struct option_table config_table(struct config *c,
                                 struct option_spec specs[CONFIG_OPTIONS_MAX])
{
    const size_t n = sizeof(all_options) / sizeof(*all_options);

    _Static_assert(sizeof(all_options) <= (CONFIG_OPTIONS_MAX - CONFIG_LISTS) *
                                              sizeof(*all_options),
                   "CONFIG_OPTIONS_MAX");
    memcpy(specs, all_options, sizeof(all_options));
    for (size_t i = 0; i < n; i++) {
        specs[i].value = (char *)c + (size_t)all_options[i].value;
        specs[i].initial = specs[i].initial ? specs[i].initial : "";
        specs[i].size = specs[i].size ? specs[i].size : CONFIG_STRING_MAX;
    }
    return (struct option_table){specs, n};
}

bool config_is_settings(const struct option_spec *o)
{
    return o->check == check_policy_options;
}
