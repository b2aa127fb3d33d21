/*
 * Every parameter of the two endpoints except the prompt, in one table: which
 * are read, which are accepted at their neutral value only, and why another
 * value is refused. Others are unknown.
 */
#include "conductor/front/openai/params.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_SALT_BYTES 256

/* VALUE: other values are invalid, not just unsupported by the model; the
 * reason says what a value must be. */
enum { COMPLETION = 1, CHAT = 2, BOTH = COMPLETION | CHAT, VALUE = 4 };

typedef bool neutral_fn(const json_t *value);

static bool is_any(const json_t *)
{
    return true;
}

/* Null is neutral everywhere and never gets here. */
static bool is_null(const json_t *)
{
    return false;
}

static bool is_zero(const json_t *v)
{
    return json_is_number(v) && fpclassify(json_number_value(v)) == FP_ZERO;
}

static bool is_one(const json_t *v)
{
    return json_is_number(v) && !islessgreater(json_number_value(v), 1.0);
}

/* is_false() and so on. */
#define IS(type)                           \
    static bool is_##type(const json_t *v) \
    {                                      \
        return json_is_##type(v);          \
    }
IS(false)
IS(true)
IS(boolean)
IS(integer)
IS(string)
IS(object)

static bool is_count(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

/* Values that leave the likeliest token: all tokens, or one. */
static bool is_top_k(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= -1 &&
           json_integer_value(v) <= 1;
}

static bool is_empty(const json_t *v)
{
    return (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static bool is_none(const json_t *v)
{
    return json_is_string(v) && strcmp(json_string_value(v), "none") == 0;
}

static bool is_text_format(const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));

    return type && strcmp(type, "text") == 0 && json_object_size(v) == 1;
}

static bool is_text_only(const json_t *v)
{
    const char *first = json_string_value(json_array_get(v, 0));

    return json_array_size(v) == 1 && first && strcmp(first, "text") == 0;
}

static bool is_default_tier(const json_t *v)
{
    const char *s = json_string_value(v);

    return s && (strcmp(s, "auto") == 0 || strcmp(s, "default") == 0);
}

static const struct param {
    const char *name;
    int kinds;
    neutral_fn *neutral; /* whether a value other than null is neutral */
    const char *reason;  /* why others are refused, and what to send */
} params[] = {
    /* Read elsewhere: any value passes here. */
    {"model", BOTH, is_any, ""},
    {"prompt", COMPLETION, is_any, ""},
    {"messages", CHAT, is_any, ""},
    {"max_tokens", BOTH, is_any, ""},
    {"max_completion_tokens", CHAT, is_any, ""},
    {"stream", BOTH, is_any, ""},
    {"stream_options", BOTH, is_any, ""},
    {"cache_salt", BOTH, is_any, ""},
    /* Change nothing about the answer. */
    {"seed", BOTH | VALUE, is_integer, "an integer"},
    {"user", BOTH | VALUE, is_string, "a string"},
    {"safety_identifier", CHAT | VALUE, is_string, "a string"},
    {"prompt_cache_key", BOTH | VALUE, is_string, "a string"},
    {"metadata", BOTH | VALUE, is_object, "an object"},
    {"ignore_eos", BOTH | VALUE, is_boolean, "true or false"},
    {"parallel_tool_calls", CHAT | VALUE, is_boolean, "true or false"},
    {"priority", BOTH | VALUE, is_integer, "an integer"},
    {"request_id", BOTH | VALUE, is_string, "a string"},
    {"min_tokens", BOTH | VALUE, is_count, "a whole number of at least 0"},
    {"skip_special_tokens", BOTH | VALUE, is_boolean, "true or false"},
    {"spaces_between_special_tokens", BOTH | VALUE, is_boolean,
     "true or false"},
    {"add_special_tokens", BOTH | VALUE, is_boolean, "true or false"},
    {"include_stop_str_in_output", BOTH | VALUE, is_boolean, "true or false"},
    {"chat_template_kwargs", CHAT | VALUE, is_object,
     "an object; its template takes no arguments"},
    {"service_tier", BOTH, is_default_tier,
     "there is one tier; leave it out or set it to \"auto\""},
    /* Neutral values only. */
    {"temperature", BOTH, is_zero,
     "it decodes greedily; leave it out or set it to 0"},
    {"top_p", BOTH, is_one, "it decodes greedily; leave it out or set it to 1"},
    {"top_k", BOTH, is_top_k,
     "it decodes greedily; leave it out or set it to -1"},
    {"min_p", BOTH, is_zero,
     "it decodes greedily; leave it out or set it to 0"},
    {"repetition_penalty", BOTH, is_one,
     "it has no penalties; leave it out or set it to 1"},
    {"length_penalty", BOTH, is_one,
     "it has no penalties; leave it out or set it to 1"},
    {"use_beam_search", BOTH, is_false, "it decodes greedily; leave it out"},
    {"n", BOTH, is_one,
     "it decodes greedily, so all answers would be the same; leave it out or "
     "set it to 1"},
    {"best_of", COMPLETION, is_one,
     "it decodes greedily; leave it out or set it to 1"},
    {"frequency_penalty", BOTH, is_zero,
     "it has no penalties; leave it out or set it to 0"},
    {"presence_penalty", BOTH, is_zero,
     "it has no penalties; leave it out or set it to 0"},
    {"stop_token_ids", BOTH, is_empty,
     "it stops at max_tokens only; leave it out"},
    {"bad_words", BOTH, is_empty, "it bans no words; leave it out"},
    {"prompt_logprobs", BOTH, is_zero,
     "it returns no probabilities; leave it out"},
    {"return_token_ids", BOTH, is_false, "it returns text; leave it out"},
    {"return_tokens_as_token_ids", BOTH, is_false,
     "it returns text; leave it out"},
    {"return_hidden_states", BOTH, is_false, "it returns text; leave it out"},
    {"add_generation_prompt", CHAT, is_true,
     "an answer always begins a message; leave it out or set it to true"},
    {"continue_final_message", CHAT, is_false,
     "an answer always begins a message; leave it out or set it to false"},
    {"chat_template", CHAT, is_null,
     "it has a template of its own; leave it out"},
    {"logit_bias", BOTH, is_empty, "it has no bias; leave it out"},
    {"logprobs", BOTH, is_false, "it returns no probabilities; leave it out"},
    {"top_logprobs", CHAT, is_zero,
     "it returns no probabilities; leave it out"},
    {"echo", COMPLETION, is_false,
     "it cannot echo the prompt; leave it out or set it to false"},
    {"suffix", COMPLETION, is_empty, "it cannot insert text; leave it out"},
    {"stop", BOTH, is_empty, "it has no stop sequences; leave it out"},
    {"tools", CHAT, is_empty, "it calls no tools; leave it out"},
    {"tool_choice", CHAT, is_none, "it calls no tools; leave it out"},
    {"functions", CHAT, is_empty, "it calls no functions; leave it out"},
    {"function_call", CHAT, is_none, "it calls no functions; leave it out"},
    {"response_format", CHAT, is_text_format,
     "it answers in plain text; leave it out"},
    {"modalities", CHAT, is_text_only, "it answers in text; leave it out"},
    {"store", CHAT, is_false, "nothing is stored; leave it out"},
    {"audio", CHAT, is_null, "it answers in text; leave it out"},
    {"prediction", CHAT, is_null, "it takes no prediction; leave it out"},
    {"reasoning_effort", CHAT, is_none, "it doesn't reason; leave it out"},
    {"verbosity", CHAT, is_null, "it has no verbosity levels; leave it out"},
    {"web_search_options", CHAT, is_null,
     "it cannot search the web; leave it out"},
};

static const struct param *find(enum openai_kind kind, const char *name)
{
    int bit = kind == OPENAI_CHAT ? CHAT : COMPLETION;

    for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++)
        if ((params[i].kinds & bit) && strcmp(params[i].name, name) == 0)
            return &params[i];
    return NULL;
}

static int bad_value(struct openai_error *error, const char *name,
                     const json_t *value, const char *must)
{
    char shown[OPENAI_SHOWN_BYTES];

    return openai_error_set(error, 400, "invalid_value", name,
                            "%s: %s: must be %s", name,
                            openai_show(value, shown), must);
}

static int unknown(struct openai_error *error, const char *object,
                   const char *name, const json_t *value)
{
    char shown[OPENAI_SHOWN_BYTES];

    return openai_error_set(
        error, 400, "unknown_parameter", *object ? object : name,
        "%s%s%.60s: %s: unknown parameter", object, *object ? "." : "", name,
        openai_show(value, shown));
}

/* Checks that every member is known and, where it must be, neutral. */
static int check_members(enum openai_kind kind, const json_t *body,
                         const struct openai_model *model,
                         struct openai_error *error)
{
    const char *name;
    json_t *value;
    char shown[OPENAI_SHOWN_BYTES];

    json_object_foreach((json_t *)body, name, value)
    {
        const struct param *param = find(kind, name);

        if (!param)
            return unknown(error, "", name, value);
        if (json_is_null(value) || param->neutral(value))
            continue;
        if (param->kinds & VALUE)
            return bad_value(error, name, value, param->reason);
        return openai_error_set(error, 400, "unsupported_parameter", name,
                                "%s: %s: not supported by model \"%.100s\": %s",
                                name, openai_show(value, shown), model->name,
                                param->reason);
    }
    return 0;
}

static int read_model(const json_t *body, const struct openai_model *model,
                      struct openai_error *error)
{
    const json_t *value = json_object_get(body, "model");
    char cut[OPENAI_CUT_BYTES];

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value))
        return bad_value(error, "model", value, "a string");
    if (!*json_string_value(value) ||
        strcmp(json_string_value(value), model->name) == 0)
        return 0;
    return openai_error_set(error, 404, "model_not_found", "model",
                            "model: \"%s\": does not exist; this server has "
                            "\"%.100s\"",
                            openai_cut(json_string_value(value), cut),
                            model->name);
}

/* Reads a boolean that may be absent or null. */
static int read_bool(const json_t *object, const char *key, const char *name,
                     bool *out, struct openai_error *error)
{
    const json_t *value = json_object_get(object, key);

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_boolean(value))
        return bad_value(error, name, value, "true or false");
    *out = json_is_true(value);
    return 0;
}

static int read_max_tokens(const json_t *body, const char *name,
                           struct openai_request *out, const char **limit,
                           struct openai_error *error)
{
    const json_t *value = json_object_get(body, name);
    json_int_t n = json_integer_value(value);

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_integer(value) || n < 1)
        return bad_value(error, name, value, "a whole number of at least 1");
    /* Larger than any window, which check_lengths() reports. */
    if (n > UINT32_MAX)
        n = UINT32_MAX;
    if (*limit && out->max_tokens != (uint32_t)n)
        return bad_value(error, name, value, "the same as max_tokens");
    *limit = name;
    out->max_tokens = (uint32_t)n;
    return 0;
}

static int read_stream(const json_t *body, struct openai_request *out,
                       struct openai_error *error)
{
    const json_t *options = json_object_get(body, "stream_options");
    const char *key;
    json_t *value;

    if (read_bool(body, "stream", "stream", &out->stream, error))
        return -EINVAL;
    if (!options || json_is_null(options))
        return 0;
    if (!json_is_object(options))
        return bad_value(error, "stream_options", options, "an object");
    if (!out->stream)
        return bad_value(error, "stream_options", options,
                         "left out where stream isn't true");
    json_object_foreach((json_t *)options, key, value)
    {
        if (strcmp(key, "include_usage") != 0 &&
            strcmp(key, "continuous_usage_stats") != 0 &&
            strcmp(key, "include_obfuscation") != 0)
            return unknown(error, "stream_options", key, value);
    }
    value = json_object_get(options, "include_obfuscation");
    if (value && !json_is_null(value) && !json_is_false(value))
        return bad_value(error, "stream_options.include_obfuscation", value,
                         "false: none is sent");
    if (read_bool(options, "include_usage", "stream_options.include_usage",
                  &out->include_usage, error) ||
        read_bool(options, "continuous_usage_stats",
                  "stream_options.continuous_usage_stats", &out->usage_each,
                  error))
        return -EINVAL;
    out->usage_each = out->usage_each && out->include_usage;
    return 0;
}

static int read_salt(const json_t *body, struct openai_request *out,
                     struct openai_error *error)
{
    const json_t *value = json_object_get(body, "cache_salt");

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value) || json_string_length(value) == 0 ||
        json_string_length(value) > MAX_SALT_BYTES)
        return bad_value(error, "cache_salt", value,
                         "a string of 1 to 256 bytes");
    out->salt = strdup(json_string_value(value));
    return out->salt ? 0 : -ENOMEM;
}

/* Reads an integer, clamped as value_priority() does. */
static int32_t read_priority(const json_t *body)
{
    json_int_t n = json_integer_value(json_object_get(body, "priority"));

    return n > INT32_MAX ? INT32_MAX : n < -INT32_MAX ? -INT32_MAX : (int32_t)n;
}

int openai_params_read(const json_t *body, const struct openai_model *model,
                       struct openai_request *out, const char **limit,
                       struct openai_error *error)
{
    *limit = NULL;
    if (read_model(body, model, error) ||
        check_members(out->kind, body, model, error) ||
        read_max_tokens(body, "max_tokens", out, limit, error) ||
        read_max_tokens(body, "max_completion_tokens", out, limit, error) ||
        read_stream(body, out, error))
        return -EINVAL;
    out->priority = read_priority(body);
    return read_salt(body, out, error);
}
