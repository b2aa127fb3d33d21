/* The table of the daemon's options: what each is called, where its value is,
 * and what it may be. It drives everything else. */
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "conductor/config/internal.h"
#include "conductor/core/step/queue.h"
#include "conductor/policy_text.h"

static const char *check_policy_options(const char *text)
{
    struct policy_settings settings;
    char error[CONFIG_ERROR_MAX];

    return config_settings(text, &settings, error, sizeof(error))
               ? "NAME=NUMBER, or several of it separated by commas"
               : NULL;
}

/* enum config_pool */
static const char *pool_name(size_t i)
{
    static const char *const names[] = {"split", "aggregated"};

    return i < 2 ? names[i] : NULL;
}

/* enum config_keys */
static const char *keys_name(size_t i)
{
    static const char *const names[] = {"open", "required"};

    return i < 2 ? names[i] : NULL;
}

static const char *switch_name(size_t i)
{
    static const char *const names[] = {"off", "on"};

    return i < 2 ? names[i] : NULL;
}

/* Where a value is in struct config; config_table() adds the struct. */
#define AT(member) ((void *)offsetof(struct config, member))

static const struct option_spec all_options[] = {
    {"listen", OPTION_STRING, AT(listen), "host:port", 0, 0,
     "where clients reach the HTTP API; port 0 takes any free one, host `*` "
     "every address",
     .initial = "127.0.0.1:8080", .check = option_check_address,
     .size = CONFIG_STRING_MAX},
    {"worker_listen", OPTION_STRING, AT(worker_listen), "host:port", 0, 0,
     "where workers register; port 0 takes any free one, empty: nowhere. "
     "Empty if the file has engines and does not set it",
     .initial = "127.0.0.1:8081", .check = option_check_optional,
     .size = CONFIG_STRING_MAX},
    {"secret_file", OPTION_STRING, AT(secret_file), "file", 0, 0,
     "what workers must prove to know (their --secret-file); needed when "
     "other machines reach worker_listen",
     .initial = "", .size = CONFIG_STRING_MAX},
    {"model", OPTION_STRING, AT(model), "", 1, 63,
     "the served model; a worker of another model is refused",
     .initial = "tiny", .size = CONFIG_STRING_MAX, .check = option_check_name},
    {"block_tokens", OPTION_COUNT, AT(block_tokens), "tokens", 16, 512,
     "tokens in one KV block; a worker of another size is refused",
     .initial = "256", .step = 16},
    {"pool", OPTION_CHOICE, AT(pool), "", 0, 0,
     "where a request of native workers decodes: split = on the worker "
     "that decodes fastest, aggregated = where it was prefilled, for "
     "workers of role both; one of:",
     .initial = "split", .choice = pool_name},
    {"step_tokens", OPTION_COUNT, AT(step_tokens), "tokens", 0, 1000000,
     "tokens that an engine computes in a step, where requests decode where "
     "they were prefilled: estimates of prefills beside decodes count with it "
     "(vLLM's --max-num-batched-tokens, SGLang's --chunked-prefill-size, a "
     "worker's --step-tokens); 0 = a prompt is one step, and nothing "
     "interrupts it",
     .initial = "2048"},
    {"policy", OPTION_STRING, AT(policy), "", 0, 0,
     "how a request's prefill instance is chosen:", .initial = POLICY_DEFAULT,
     .choice = schedule_policy_name, .size = CONFIG_STRING_MAX},
    {"policy_options", OPTION_STRING, AT(policy_options), "", 0, 0,
     "options of the policy by name; listed below", .initial = "",
     .check = check_policy_options, .size = CONFIG_STRING_MAX},
    {"kvcache_balancing_threshold", OPTION_NUMBER,
     AT(kvcache_balancing_threshold), "ratio", 1, 1e6,
     "option of the policy global_cache; policy_options overrides it",
     .initial = "1"},
    {"queue_order", OPTION_STRING, AT(queue_order), "", 0, 0,
     "the order in which every worker serves its prefills, and by which "
     "waits are estimated, unless the policy brings its own:",
     .initial = QUEUE_ORDER_DEFAULT, .choice = queue_order_name,
     .size = CONFIG_STRING_MAX},
    {"cost_model", OPTION_STRING, AT(cost_model), "file", 0, 0,
     "the cost model that conductor-fit wrote, of all native workers without "
     "their own in worker_costs; the table of policies below says "
     "which ones need none",
     .initial = "", .size = CONFIG_STRING_MAX},
    {"seed", OPTION_COUNT, AT(seed), "", 0, 9e15,
     "option of the policy random; policy_options overrides it",
     .initial = "1"},
    {"slo_ttft_ms", OPTION_COUNT, AT(slo_ttft_ms), "ms", 0, 86400000,
     "default limit on the time to first token; 0 = none", .reloads = true,
     .initial = "0"},
    {"slo_tbt_ms", OPTION_COUNT, AT(slo_tbt_ms), "ms", 0, 86400000,
     "default limit on the time between tokens; 0 = none", .reloads = true,
     .initial = "0"},
    {"max_body_bytes", OPTION_COUNT, AT(max_body_bytes), "bytes", 1024, 1 << 28,
     "longest request body; a longer one is answered 413",
     .initial = "16777216"},
    {"max_body_total_bytes", OPTION_COUNT, AT(max_body_total_bytes), "bytes",
     1 << 20, 1e12,
     "request bodies being received, all together; what does not fit is "
     "answered 503, and one client has at most four times as much as is free. "
     "As many bytes again for the replies of pairs' prefill "
     "legs, "
     "all together",
     .initial = "1073741824"},
    {"max_output_total_bytes", OPTION_COUNT, AT(max_output_total_bytes),
     "bytes", 1 << 16, 1e12,
     "memory of what clients have not taken of their answers, all together: "
     "from half of it on engines are held back, and one client has at most "
     "four "
     "times as much as is free; a stream over that is broken off, and a long "
     "answer becomes a 503",
     .initial = "268435456"},
    {"max_connections", OPTION_COUNT, AT(max_connections), "", 1, 100000,
     "open client connections; fewer if the limit of open files leaves no "
     "more. One client has at most four times as many as are free; idle ones "
     "of who has the most are closed for others",
     .initial = "4096"},
    {"max_in_flight", OPTION_COUNT, AT(max_in_flight), "requests", 1, 1000000,
     "requests between arrival and last token; more are answered 429",
     .initial = "4096"},
    {"max_instances", OPTION_COUNT, AT(max_instances), "instances", 1, 4096,
     "registered workers, or wanted engines; more are refused",
     .initial = "256"},
    {"max_queue_per_instance", OPTION_COUNT, AT(max_queue_per_instance),
     "requests", 1, 1023, "prefills waiting on one instance", .initial = "512"},
    {"index_mib", OPTION_COUNT, AT(index_mib), "MiB", 1, 65536,
     "memory of the prefix index, which knows the workers' blocks: about "
     "24 bytes a block; untouched memory costs nothing, but for the table, a "
     "quarter, which is touched after the start",
     .initial = "96"},
    {"heartbeat_ms", OPTION_COUNT, AT(heartbeat_ms), "ms", 10, 60000,
     "how often a worker reports its state", .initial = "500"},
    {"worker_timeout_ms", OPTION_COUNT, AT(worker_timeout_ms), "ms", 100,
     600000,
     "a worker that is silent for this long is taken as gone; at least two "
     "heartbeat_ms",
     .initial = "5000"},
    {"request_timeout_ms", OPTION_COUNT, AT(request_timeout_ms), "ms", 100,
     86400000,
     "a worker that says nothing for this long about a request that it should "
     "go on with, or an engine of whose answer nothing comes, has failed it, "
     "whatever else it says; more than any request waits for its turn there, "
     "and than an answer takes that is not streamed",
     .reloads = true, .initial = "600000"},
    {"max_retries", OPTION_COUNT, AT(max_retries), "", 0, 100,
     "other choices tried when a worker fails before the first token",
     .reloads = true, .initial = "3"},
    {"engine_health_ms", OPTION_COUNT, AT(engine_health_ms), "ms", 10, 600000,
     "how often an engine is asked whether it is well, about", .reloads = true,
     .initial = "1000"},
    {"engine_tokenize_ms", OPTION_COUNT, AT(engine_tokenize_ms), "ms", 0, 60000,
     "how long an engine may take to say what the tokens of a text are, where "
     "the index knows engines by their KV events; 0 = it is not asked",
     .reloads = true, .initial = "200"},
    {"token_cache_mib", OPTION_COUNT, AT(token_cache_mib), "MiB", 0, 65536,
     "memory for the tokens of texts that engines were asked for, of each "
     "model: the same text is not asked for again; 0 = none are kept",
     .initial = "64"},
    {"keepalive_ms", OPTION_COUNT, AT(keepalive_ms), "ms", 0, 600000,
     "a streamed request that has had no answer for so long gets a comment, "
     "again and again, so that nobody in between gives up; from then on an "
     "error is an event, and no status; 0 = none",
     .reloads = true, .initial = "0"},
    {"cache_salt_header", OPTION_STRING, AT(cache_salt_header), "header", 0, 0,
     "request header, set by a gateway, whose value is every prompt's "
     "cache_salt in place of the client's own: nobody finds another tenant's "
     "blocks; empty: none",
     .initial = "", .check = option_check_header, .size = CONFIG_STRING_MAX},
    {"priority_header", OPTION_STRING, AT(priority_header), "header", 0, 0,
     "request header whose value is set as the member priority of engines' "
     "requests, in place of the client's own; empty: none",
     .initial = "", .check = option_check_header, .size = CONFIG_STRING_MAX},
    {"tenant_header", OPTION_STRING, AT(tenant_header), "header", 0, 0,
     "request header whose value says who asks (of authorization what is "
     "behind Bearer): whose requests are counted together for fair shares, and "
     "ordered by priority; empty: all are of one tenant",
     .initial = "authorization", .check = option_check_tenant_header,
     .size = CONFIG_STRING_MAX},
    {"api_keys", OPTION_CHOICE, AT(api_keys), "", 0, 0,
     "who may ask: open = everybody who reaches listen; required = who has a "
     "key of tenants_file, within its limits, and then tenants find no block "
     "of another in the cache; one of:",
     .reloads = true, .initial = "open", .choice = keys_name},
    {"tenants_file", OPTION_STRING, AT(tenants_file), "file", 0, 0,
     "JSON with names and weights of these values, "
     "[as below](#tenants). All others are one tenant "
     "then; empty: each is one, of weight 1",
     .reloads = true, .initial = "", .size = CONFIG_STRING_MAX},
    {"cors_origins", OPTION_STRING, AT(cors_origins), "origins", 0, 0,
     "pages of these origins (https://HOST[:PORT], separated by commas; * = of "
     "all) may ask models from a browser: the conductor answers what the "
     "browser asks first (OPTIONS), and what engines say of it does not pass; "
     "never for /admin; empty: no page, unless no keys are required and an "
     "engine lets it",
     .reloads = true, .initial = "", .check = option_check_origins,
     .size = CONFIG_STRING_MAX},
    {"max_tickets", OPTION_COUNT, AT(max_tickets), "tickets", 1, 1000000,
     "requests of each model that other gateways were told where to send "
     "(`/v1/schedule`) and that have not ended; no tenant has more than four "
     "times those that are free. Each counts for max_in_flight, too",
     .reloads = true, .initial = "2048"},
    {"ticket_timeout_ms", OPTION_COUNT, AT(ticket_timeout_ms), "ms", 10,
     86400000,
     "a gateway that says nothing for so long about a ticket is taken to be "
     "done with it; where it never does, about as long as answers take",
     .reloads = true, .initial = "120000"},
    {"engine_timeout_ms", OPTION_COUNT, AT(engine_timeout_ms), "ms", 10, 600000,
     "time for a connection to an engine to open, and for its answer when "
     "it is asked whether it is well",
     .initial = "2000"},
    {"engine_dns_ms", OPTION_COUNT, AT(engine_dns_ms), "ms", 100, 3600000,
     "how often the hosts of engines with dns are looked up, about",
     .initial = "5000"},
    {"engine_drain_ms", OPTION_COUNT, AT(engine_drain_ms), "ms", 0, 86400000,
     "how long an engine that is not wanted any more may go on with the "
     "requests that it has; those that are left then are tried elsewhere, or "
     "end if their answer has begun; 0 = for ever",
     .reloads = true, .initial = "600000"},
    {"engines_file", OPTION_STRING, AT(engines_file), "file", 0, 0,
     "JSON with a member engines, as below, for more of them; read again when "
     "it changes",
     .initial = "", .size = CONFIG_STRING_MAX},
    {"name_server", OPTION_STRING, AT(name_server), "host:port", 0, 0,
     "which name server looks up engines' hosts, by its address; empty: those "
     "of /etc/resolv.conf",
     .initial = "", .check = option_check_optional, .size = CONFIG_STRING_MAX},
    {"drain_wait_ms", OPTION_COUNT, AT(drain_wait_ms), "ms", 0, 3600000,
     "told to stop, the conductor says for so long at /ready that it is not "
     "ready, and serves still: time for load balancers to see it",
     .reloads = true, .initial = "0"},
    {"drain_limit_ms", OPTION_COUNT, AT(drain_limit_ms), "ms", 0, 86400000,
     "then it takes no more requests, and those in flight have so long to end; "
     "what is left gets an error",
     .reloads = true, .initial = "30000"},
    {"admin_listen", OPTION_STRING, AT(admin_listen), "host:port", 0, 0,
     "where operators and monitoring reach /admin, /metrics, the KV-indexer "
     "API, /health and /ready; `listen` then has /v1, /health and /ready "
     "alone. "
     "Clients that fill `listen` do not keep anybody from it. Where others "
     "than "
     "this machine reach it, it needs admin_key_file; empty: `listen` has all",
     .initial = "", .check = option_check_optional, .size = CONFIG_STRING_MAX},
    {"admin_key_file", OPTION_STRING, AT(admin_key_file), "file", 0, 0,
     "file with the key that changes over /admin need, and with admin_listen "
     "all of /admin; without one only this machine can make them",
     .reloads = true, .initial = "", .size = CONFIG_STRING_MAX},
    {"tls_certificate", OPTION_STRING, AT(tls_certificate), "file", 0, 0,
     "PEM with the certificate of `listen` and, behind it, those that vouch "
     "for it: clients must come with https then. On reload it is read again, "
     "and shown to new connections; empty: http",
     .reloads = true, .initial = "", .size = CONFIG_STRING_MAX},
    {"tls_key", OPTION_STRING, AT(tls_key), "file", 0, 0,
     "PEM with the private key of tls_certificate, without a passphrase",
     .reloads = true, .initial = "", .size = CONFIG_STRING_MAX},
    {"worker_tls_certificate", OPTION_STRING, AT(worker_tls_certificate),
     "file", 0, 0,
     "the same for worker_listen: workers must come with TLS then, and trust "
     "it by their --tls-ca. secret_file is proven within it",
     .reloads = true, .initial = "", .size = CONFIG_STRING_MAX},
    {"worker_tls_key", OPTION_STRING, AT(worker_tls_key), "file", 0, 0,
     "PEM with the private key of worker_tls_certificate", .reloads = true,
     .initial = "", .size = CONFIG_STRING_MAX},
    {"admin_tls", OPTION_CHOICE, AT(admin_tls), "", 0, 0,
     "whether admin_listen shows tls_certificate, too; one of:",
     .reloads = true, .initial = "off", .choice = switch_name},
    {"link_mbps", OPTION_COUNT, AT(link_mbps), "Mbit/s", 1, 10000000,
     "first guess of what a link between workers carries; measured later",
     .initial = "10000"},
    {"disk_mbps", OPTION_COUNT, AT(disk_mbps), "Mbit/s", 1, 10000000,
     "first guess of what a worker reads from its disk; measured later",
     .initial = "8000"},
    {"shared_store_mbps", OPTION_COUNT, AT(shared_store_mbps), "Mbit/s", 1,
     10000000,
     "first guess of what a worker reads from the store that workers share; "
     "measured later",
     .initial = "8000"},
    {"correction_ms", OPTION_COUNT, AT(correction_ms), "ms", 1, 3600000,
     "an instance's predictions follow its observed speed: 63 % of a "
     "change is believed after so much predicted prefill work; ten typical "
     "prefills or more",
     .initial = "60000"},
    {"explain_requests", OPTION_COUNT, AT(explain_requests), "requests", 0,
     10000, "last requests that GET /admin/explain/ID tells of; 0 = none",
     .initial = "256"},
    {"access_log", OPTION_STRING, AT(access_log), "file", 0, 0,
     "a line of JSON for each request that has ended goes here, \"-\": to "
     "standard output; opened again on reload; empty: nowhere",
     .reloads = true, .initial = "", .size = CONFIG_STRING_MAX},
    {"access_log_blocks", OPTION_COUNT, AT(access_log_blocks), "", 0, 1,
     "whether these lines name the prompt's blocks (hash_ids), so that "
     "conductor-replay can read them as a trace",
     .reloads = true, .initial = "0"},
    {"otlp_endpoint", OPTION_STRING, AT(otlp_endpoint), "URL", 0, 0,
     "spans of requests go there, as OpenTelemetry's protocol has them over "
     "HTTP in JSON: http://HOST:PORT/v1/traces; empty: nowhere",
     .reloads = true, .initial = "", .check = option_check_otlp,
     .size = CONFIG_STRING_MAX},
    {"otlp_sample_ratio", OPTION_NUMBER, AT(otlp_sample_ratio), "ratio", 0, 1,
     "the share of requests that are told of there, of those whose client has "
     "not decided it (traceparent)",
     .reloads = true, .initial = "1"},
    {"state", OPTION_STRING, AT(state), "", 0, 0,
     "where several conductors in front of the same instances tell each other "
     "what they do: memory: nowhere, there is one; "
     "redis://[:PASSWORD@]HOST:PORT[,HOST:PORT...][/DATABASE], or "
     "redis+sentinel://HOST:PORT[,...]/NAME; with rediss in place of redis, "
     "where this was built with hiredis 1.0 or later, by TLS",
     .initial = "memory", .size = CONFIG_URL_MAX},
    {"state_ca_file", OPTION_STRING, AT(state_ca_file), "file", 0, 0,
     "PEM with the certificates of the authorities that are trusted with a "
     "rediss:// of state; empty: those that the machine trusts",
     .initial = "", .size = CONFIG_STRING_MAX},
    {"worker_address", OPTION_STRING, AT(worker_address), "host:port", 0, 0,
     "where workers reach worker_listen, as other conductors tell them; empty: "
     "its host, or, if that is every address, the one from which Redis is "
     "reached",
     .initial = "", .check = option_check_optional, .size = CONFIG_STRING_MAX},
    {"state_lease_ms", OPTION_COUNT, AT(state_lease_ms), "ms", 300, 60000,
     "how long a conductor that says nothing counts as there: then what it had "
     "booked is free for the others, and another one leads",
     .initial = "3000"},
    {"log_level", OPTION_CHOICE, AT(log_level), "", 0, 0,
     "the least severe messages that are logged:", .reloads = true,
     .initial = "info", .choice = log_level_name},
    {"log_format", OPTION_CHOICE, AT(log_format), "", 0, 0,
     "what a line of the log is: text, or an object of JSON with time, level, "
     "program and message:",
     .reloads = true, .initial = "text", .choice = log_format_name},
};

struct option_table config_table(struct config *c,
                                 struct option_spec specs[CONFIG_OPTIONS_MAX])
{
    const size_t n = sizeof(all_options) / sizeof(*all_options);

    _Static_assert(sizeof(all_options) <=
                       CONFIG_OPTIONS_MAX * sizeof(*all_options),
                   "CONFIG_OPTIONS_MAX");
    memcpy(specs, all_options, sizeof(all_options));
    for (size_t i = 0; i < n; i++)
        specs[i].value = (char *)c + (size_t)all_options[i].value;
    return (struct option_table){specs, n};
}

bool config_is_settings(const struct option_spec *o)
{
    return o->check == check_policy_options;
}
