/* Which of a client's requests an engine may get. */
#include "conductor/front/openai/body/path.h"

#include <string.h>
#include <strings.h>

#include "conductor/http/chars.h"

#define OPEN_PREFIX "/v1/"
#define FLAT_BYTES FORWARD_PATH_BYTES

/* Closed paths below /v1/, of vLLM and SGLang: adapters, and the load of
 * ranks. */
static const char *const closed[] = {
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/loads", NULL};

/* Open paths beside /v1/, of vLLM, SGLang, llama.cpp's server and others: they
 * answer a prompt, rate texts or tokenise them. */
static const char *const beside[] = {"/apply-template",
                                     "/chat/completions",
                                     "/classify",
                                     "/cohere/v2/chat",
                                     "/completion",
                                     "/completions",
                                     "/detokenize",
                                     "/embed",
                                     "/embedding",
                                     "/embeddings",
                                     "/encode",
                                     "/generate",
                                     "/generate_stream",
                                     "/generative_scoring",
                                     "/inference/v1/generate",
                                     "/infill",
                                     "/invocations",
                                     "/parse_function_call",
                                     "/pooling",
                                     "/rerank",
                                     "/reranking",
                                     "/responses",
                                     "/score",
                                     "/separate_reasoning",
                                     "/tokenize",
                                     "/v2/embed",
                                     "/v2/rerank",
                                     NULL};

/* Paths that take cache_salt at vLLM, SGLang or both (/generate: extra_key),
 * or compute nothing from a prompt. Not /v1/messages: vLLM drops the member
 * there. */
static const char *const salted[] = {"/apply-template",
                                     "/chat/completions",
                                     "/classify",
                                     "/completions",
                                     "/detokenize",
                                     "/embeddings",
                                     "/generate",
                                     "/inference/v1/generate",
                                     "/parse_function_call",
                                     "/pooling",
                                     "/rerank",
                                     "/responses",
                                     "/score",
                                     "/separate_reasoning",
                                     "/tokenize",
                                     "/v1/chat/completions",
                                     "/v1/classify",
                                     "/v1/completions",
                                     "/v1/detokenize",
                                     "/v1/embeddings",
                                     "/v1/messages/count_tokens",
                                     "/v1/rerank",
                                     "/v1/responses",
                                     "/v1/score",
                                     "/v1/tokenize",
                                     NULL};

/* Paths of OpenAI's API that list what engines keep. */
static const char *const lists[] = {"/v1/assistants",
                                    "/v1/batches",
                                    "/v1/chat/completions",
                                    "/v1/containers",
                                    "/v1/conversations",
                                    "/v1/evals",
                                    "/v1/files",
                                    "/v1/fine_tuning/jobs",
                                    "/v1/responses",
                                    "/v1/threads",
                                    "/v1/vector_stores",
                                    "/v1/videos",
                                    NULL};

static const char *const methods[] = {"GET",   "HEAD",   "POST",    "PUT",
                                      "PATCH", "DELETE", "OPTIONS", NULL};

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
static void flatten(struct flat *f, const char *path, size_t n)
{
    size_t used;

    *f = (struct flat){.dots = true};
    put(f, '/');
    for (size_t i = 1; i < n; i += used) {
        f->odd |= path[i] == '#';
        take(f, http_decode(path + i, n - i, &used));
    }
    if (f->segment)
        end_segment(f);
    else if (f->n > 1 && f->n < FLAT_BYTES)
        f->n--;
}

static bool is_one(const char *const *all, const char *at, size_t n, bool fold)
{
    for (; *all; all++)
        if (strlen(*all) == n &&
            (fold ? strncasecmp(*all, at, n) == 0 : memcmp(*all, at, n) == 0))
            return true;
    return false;
}

size_t forward_path_read(const char *path, size_t n,
                         char text[FORWARD_PATH_BYTES])
{
    struct flat flat;

    flatten(&flat, path, n);
    if (flat.odd || flat.n == FLAT_BYTES)
        return 0;
    memcpy(text, flat.text, flat.n);
    return flat.n;
}

bool forward_path_salted(const char *path, size_t n)
{
    char text[FORWARD_PATH_BYTES];
    size_t n_id, length = forward_path_read(path, n, text);

    return forward_path_kept(path, n, &n_id) ||
           is_one(salted, text, length, false);
}

enum forward_path forward_path_of(const char *method, size_t n_method,
                                  const char *path, size_t n)
{
    bool post = n_method == 4 && memcmp(method, "POST", 4) == 0;
    size_t n_open = sizeof(OPEN_PREFIX) - 1;
    struct flat flat;

    if (is_one(beside, path, n, false))
        return post ? FORWARD_PATH_OPEN : FORWARD_PATH_METHOD;
    if (n <= n_open || memcmp(path, OPEN_PREFIX, n_open) != 0)
        return FORWARD_PATH_OTHER;
    flatten(&flat, path, n);
    if (flat.odd)
        return FORWARD_PATH_ODD;
    if (is_one(closed, flat.text, flat.n, true))
        return FORWARD_PATH_CLOSED;
    return is_one(methods, method, n_method, false) ? FORWARD_PATH_OPEN
                                                    : FORWARD_PATH_METHOD;
}

const char *forward_path_methods(const char *path, size_t n)
{
    return is_one(beside, path, n, false)
               ? "POST"
               : "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
}

const char *forward_path_kept(const char *path, size_t n, size_t *n_id)
{
    static const char kept[] = OPEN_PREFIX "responses/";
    size_t n_kept = sizeof(kept) - 1;
    const char *end;

    *n_id = 0;
    if (n <= n_kept || memcmp(path, kept, n_kept) != 0)
        return NULL;
    end = memchr(path + n_kept, '/', n - n_kept);
    *n_id = (end ? (size_t)(end - path) : n) - n_kept;
    return path + n_kept;
}

enum forward_about forward_path_about(const char *method, size_t n_method,
                                      const char *path, size_t n)
{
    static const char *const asks[] = {"POST", "OPTIONS", NULL};
    size_t n_id;
    struct flat flat;

    if (forward_path_kept(path, n, &n_id))
        return FORWARD_ABOUT_KEPT;
    flatten(&flat, path, n);
    if (is_one(asks, method, n_method, false) && flat.n < FLAT_BYTES &&
        is_one(salted, flat.text, flat.n, false))
        return FORWARD_ABOUT_PROMPT;
    return is_one(lists, flat.text, flat.n, false) ? FORWARD_ABOUT_LIST
                                                   : FORWARD_ABOUT_THING;
}

bool forward_path_looks(const char *method, size_t n_method, size_t n_body)
{
    return n_body == 0 || n_method != 4 || memcmp(method, "POST", 4) != 0;
}
