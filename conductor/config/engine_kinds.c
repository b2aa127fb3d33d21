/* The kinds of engines: their names, and the paths that a kind has. */
#include <stdio.h>

#include "conductor/config/internal.h"

/* By enum engine_kind. */
const char *const engine_kinds[] = {"openai", "vllm", "sglang", "auto", NULL};

#define ENGINE_KINDS (sizeof(engine_kinds) / sizeof(engine_kinds[0]) - 1)

const char *engine_kind_name(size_t kind)
{
    return kind < ENGINE_KINDS ? engine_kinds[kind] : NULL;
}

void engine_config_paths(struct engine_config *e)
{
    if (e->kind == ENGINE_OPENAI || e->kind == ENGINE_AUTO)
        return;
    if (!*e->metrics_path)
        snprintf(e->metrics_path, sizeof(e->metrics_path), "/metrics");
    if (!*e->tokenize_path)
        snprintf(e->tokenize_path, sizeof(e->tokenize_path), "/tokenize");
}
