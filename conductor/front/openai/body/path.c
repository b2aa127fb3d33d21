/* Decides which of a client's requests an engine may get. */
#include "conductor/front/openai/body/path.h"

#define OPEN_PREFIX "/v1/"
#define FLAT_BYTES FORWARD_PATH_BYTES

enum {
    BESIDE = 1, /* open beside /v1/, of vLLM, SGLang, llama.cpp's server and
                   others: answers a prompt, rates texts or tokenises them */
    CLOSED = 2, /* closed below /v1/, of vLLM and SGLang, in any case: adapters,
                   and the load of ranks */
    SALTED = 4, /* takes cache_salt at vLLM, SGLang or both (/generate:
                   extra_key), or computes nothing from a prompt. Not
                   /v1/messages: vLLM drops the member there */
    LISTS = 8,  /* of OpenAI's API: lists what engines keep */
};

#define PATH(path, is)                \
    {                                 \
        {path, sizeof(path) - 1}, is, \
    }
static const struct {
    struct http_slice path;
    unsigned is;
} paths[] = {
    PATH("/apply-template", BESIDE | SALTED),
    PATH("/chat/completions", BESIDE | SALTED),
    PATH("/classify", BESIDE | SALTED),
    PATH("/cohere/v2/chat", BESIDE),
    PATH("/completion", BESIDE),
    PATH("/completions", BESIDE | SALTED),
    PATH("/detokenize", BESIDE | SALTED),
    PATH("/embed", BESIDE),
    PATH("/embedding", BESIDE),
    PATH("/embeddings", BESIDE | SALTED),
    PATH("/encode", BESIDE),
    PATH("/generate", BESIDE | SALTED),
    PATH("/generate_stream", BESIDE),
    PATH("/generative_scoring", BESIDE),
    PATH("/inference/v1/generate", BESIDE | SALTED),
    PATH("/infill", BESIDE),
    PATH("/invocations", BESIDE),
    PATH("/parse_function_call", BESIDE | SALTED),
    PATH("/pooling", BESIDE | SALTED),
    PATH("/rerank", BESIDE | SALTED),
    PATH("/reranking", BESIDE),
    PATH("/responses", BESIDE | SALTED),
    PATH("/score", BESIDE | SALTED),
    PATH("/separate_reasoning", BESIDE | SALTED),
    PATH("/tokenize", BESIDE | SALTED),
    PATH("/v1/assistants", LISTS),
    PATH("/v1/batches", LISTS),
    PATH("/v1/chat/completions", SALTED | LISTS),
    PATH("/v1/classify", SALTED),
    PATH("/v1/completions", SALTED),
    PATH("/v1/containers", LISTS),
    PATH("/v1/conversations", LISTS),
    PATH("/v1/detokenize", SALTED),
    PATH("/v1/embeddings", SALTED),
    PATH("/v1/evals", LISTS),
    PATH("/v1/files", LISTS),
    PATH("/v1/fine_tuning/jobs", LISTS),
    PATH("/v1/load_lora_adapter", CLOSED),
    PATH("/v1/loads", CLOSED),
    PATH("/v1/messages/count_tokens", SALTED),
    PATH("/v1/rerank", SALTED),
    PATH("/v1/responses", SALTED | LISTS),
    PATH("/v1/score", SALTED),
    PATH("/v1/threads", LISTS),
    PATH("/v1/tokenize", SALTED),
    PATH("/v1/unload_lora_adapter", CLOSED),
    PATH("/v1/vector_stores", LISTS),
    PATH("/v1/videos", LISTS),
    PATH("/v2/embed", BESIDE),
    PATH("/v2/rerank", BESIDE),
};

static const char *const methods[] = {"GET",   "HEAD",   "POST",   "PUT",
                                      "PATCH", "DELETE", "OPTIONS"};

/* State of reading a path: decoded, and its beginning kept. */
struct flat {
    char text[FLAT_BYTES]; /* (n), without a '/' at its end */
    size_t n;              /* FLAT_BYTES = the path was longer */
    size_t segment;        /* bytes of the segment so far */
    bool dots;             /* all of them are dots */
    bool odd;
};

/* Ends a segment: it may not be empty, "." or "..", nor these before a ";". */
static void end_segment(struct flat *f)
{
    f->odd |= f->segment == 0 || (f->dots && f->segment <= 2);
    f->segment = 0;
    f->dots = true;
}

static void put(struct flat *f, int c)
{
    if (f->n < FLAT_BYTES)
        f->text[f->n] = (char)c;
    f->n += f->n < FLAT_BYTES;
}

static void take(struct flat *f, int c)
{
    f->odd |= c < ' ' || c == 0x7f || c == '\\' || c == '%';
    if (c == '/') {
        end_segment(f);
        put(f, c);
        return;
    }
    if (c == ';' && f->dots && f->segment <= 2)
        f->odd = true;
    f->dots = f->dots && c == '.';
    f->segment++;
    put(f, c);
}

/* Reads a path that begins with '/'. One '/' may stand at its end. A '#' is
 * refused: to some engines (uvicorn with httptools) the path ends there. */
static void flatten(struct flat *f, struct http_slice path)
{
    size_t used;

    *f = (struct flat){.dots = true};
    put(f, '/');
    for (size_t i = 1; i < path.n; i += used) {
        f->odd |= path.at[i] == '#';
        take(f, http_decode(path.at + i, path.n - i, &used));
    }
    if (f->segment)
        end_segment(f);
    else if (f->n > 1 && f->n < FLAT_BYTES)
        f->n--;
}

/* Returns what is known of a path: bits, 0 = nothing. */
static unsigned known(struct http_slice path)
{
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (path.n == paths[i].path.n &&
            (memcmp(path.at, paths[i].path.at, path.n) == 0 ||
             (paths[i].is & CLOSED && http_is_alike(path, paths[i].path))))
            return paths[i].is;
    return 0;
}

static unsigned known_flat(const struct flat *f)
{
    return known((struct http_slice){f->text, f->n});
}

struct http_slice forward_path_read(struct http_slice path,
                                    char text[FORWARD_PATH_BYTES])
{
    struct flat flat;

    flatten(&flat, path);
    if (flat.odd || flat.n == FLAT_BYTES)
        return (struct http_slice){"", 0};
    memcpy(text, flat.text, flat.n);
    return (struct http_slice){text, flat.n};
}

bool forward_path_salted(struct http_slice path)
{
    char text[FORWARD_PATH_BYTES];

    return forward_path_kept(path).at ||
           known(forward_path_read(path, text)) & SALTED;
}

enum forward_path forward_path_of(struct http_slice method,
                                  struct http_slice path)
{
    struct flat flat;

    if (known(path) & BESIDE)
        return http_is(method, "POST") ? FORWARD_PATH_OPEN
                                       : FORWARD_PATH_METHOD;
    if (path.n <= strlen(OPEN_PREFIX) || !http_begins(path, OPEN_PREFIX))
        return FORWARD_PATH_OTHER;
    flatten(&flat, path);
    if (flat.odd)
        return FORWARD_PATH_ODD;
    if (known_flat(&flat) & CLOSED)
        return FORWARD_PATH_CLOSED;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (http_is(method, methods[i]))
            return FORWARD_PATH_OPEN;
    return FORWARD_PATH_METHOD;
}

const char *forward_path_methods(struct http_slice path)
{
    return known(path) & BESIDE
               ? "POST"
               : "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
}

struct http_slice forward_path_kept(struct http_slice path)
{
    static const char kept[] = OPEN_PREFIX "responses/";
    const size_t n_kept = sizeof(kept) - 1;

    if (path.n <= n_kept || !http_begins(path, kept))
        return (struct http_slice){NULL, 0};
    path = (struct http_slice){path.at + n_kept, path.n - n_kept};
    const char *end = memchr(path.at, '/', path.n);
    if (end)
        path.n = (size_t)(end - path.at);
    return path;
}

enum forward_about forward_path_about(struct http_slice method,
                                      struct http_slice path)
{
    struct flat flat;

    if (forward_path_kept(path).at)
        return FORWARD_ABOUT_KEPT;
    flatten(&flat, path);
    unsigned is = known_flat(&flat);
    if ((is & SALTED) &&
        (http_is(method, "POST") || http_is(method, "OPTIONS")))
        return FORWARD_ABOUT_PROMPT;
    return is & LISTS ? FORWARD_ABOUT_LIST : FORWARD_ABOUT_THING;
}
