/* A shared secret, and the proof of knowing it. */
#include "base/secret.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define LABEL_BYTES 16

struct secret {
    size_t n;
    uint8_t bytes[SECRET_MAX_BYTES];
};

/* Reads at most SECRET_MAX_BYTES of fd. Returns NULL, or why it cannot. */
static const char *secret_read(struct secret *s, int fd, const struct stat *st)
{
    ssize_t n;

    if (st->st_mode & S_IROTH)
        return "every user may read it: chmod 600 it, and make a new secret if "
               "any user did";
    if (st->st_size > (off_t)sizeof(s->bytes))
        return "longer than 4096 bytes";
    n = read(fd, s->bytes, sizeof(s->bytes));
    if (n < 0)
        return strerror(errno);
    s->n = (size_t)n;
    while (s->n && isspace(s->bytes[s->n - 1]))
        s->n--;
    if (s->n == 0)
        return "empty; make one with: openssl rand -hex 32";
    if (s->n < SECRET_MIN_BYTES)
        return "shorter than 16 bytes; make one with: openssl rand -hex 32";
    return NULL;
}

int secret_load(const char *path, struct secret **out, char *err,
                size_t err_bytes)
{
    *out = NULL;
    if (!path || !*path)
        return 0;
    struct secret *s = calloc(1, sizeof(*s));
    struct stat st;
    int fd = file_open(path, &st);
    const char *why = !s       ? "out of memory"
                      : fd < 0 ? file_why(fd)
                               : secret_read(s, fd, &st);
    if (fd >= 0)
        close(fd);
    if (!why) {
        *out = s;
        return 0;
    }
    snprintf(err, err_bytes, "%.300s: %s", path, why);
    secret_free(s);
    return -EINVAL;
}

void secret_free(struct secret *s)
{
    if (!s)
        return;
    OPENSSL_cleanse(s, sizeof(*s));
    free(s);
}

bool secret_is(const struct secret *s, const void *text, size_t n)
{
    return n == s->n && CRYPTO_memcmp(s->bytes, text, n) == 0;
}

int secret_digest(const void *payload, size_t len,
                  uint8_t out[PROTO_PROOF_BYTES])
{
    return EVP_Digest(payload, len, out, NULL, EVP_sha256(), NULL) == 1 ? 0
                                                                        : -EIO;
}

int secret_prove(const struct secret *s, enum secret_side side,
                 const uint8_t nonce[PROTO_NONCE_BYTES],
                 const uint8_t digest[PROTO_PROOF_BYTES],
                 uint8_t out[PROTO_PROOF_BYTES])
{
    static const char labels[][LABEL_BYTES + 1] = {
        [SECRET_CONNECTS] = "cndr 3 connects ",
        [SECRET_ACCEPTS] = "cndr 3 accepts  ",
    };
    uint8_t text[LABEL_BYTES + PROTO_NONCE_BYTES + PROTO_PROOF_BYTES];

    memcpy(text, labels[side], LABEL_BYTES);
    memcpy(text + LABEL_BYTES, nonce, PROTO_NONCE_BYTES);
    memcpy(text + LABEL_BYTES + PROTO_NONCE_BYTES, digest, PROTO_PROOF_BYTES);
    return HMAC(EVP_sha256(), s->bytes, (int)s->n, text, sizeof(text), out,
                NULL)
               ? 0
               : -EIO;
}

bool secret_proves(const struct secret *s, enum secret_side side,
                   const uint8_t nonce[PROTO_NONCE_BYTES],
                   const uint8_t digest[PROTO_PROOF_BYTES],
                   const uint8_t proof[PROTO_PROOF_BYTES])
{
    uint8_t good[PROTO_PROOF_BYTES];

    return secret_prove(s, side, nonce, digest, good) == 0 &&
           CRYPTO_memcmp(good, proof, sizeof(good)) == 0;
}
