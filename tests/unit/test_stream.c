/* Streams over a pair of sockets, plain and within TLS: what is written comes,
 * whole and in order, whoever pauses; and how they end. */
#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "base/stream/stream.h"
#include "cases.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"

#define INPUT_BYTES 3000
#define GIVE_UP_S 10

struct side {
    struct stream *stream;
    uint64_t written, taken; /* bytes: the i-th is byte_at(i) */
    size_t most;             /* bytes of input at once */
    unsigned sent, ended;
    int error;
    bool frees;     /* in the next callback */
    bool untouched; /* it uses nothing of what comes */
    bool empties;   /* but all when it has sent something */
    bool right;     /* what came is what was written */
};

static struct {
    struct loop *base;
    struct stream_loop *loop;
    SSL_CTX *server, *client;
    struct side a, b;
    uint64_t bits;
} t;

static uint64_t draw(uint64_t below)
{
    return draw_u64(&t.bits) % below;
}

static char byte_at(uint64_t i)
{
    return (char)(i * 0x9e3779b97f4a7c15u >> 56);
}

static bool side_frees(struct side *side)
{
    if (!side->frees)
        return false;
    stream_free(side->stream);
    side->stream = NULL;
    return true;
}

static void use(struct side *side, size_t n)
{
    size_t have;
    const char *in = stream_input(side->stream, &have);

    for (size_t i = 0; i < n; i++)
        side->right &= in[i] == byte_at(side->taken++);
    stream_use(side->stream, n);
}

/* All of what came, or some; or the owner reads on by itself. */
static void on_readable(void *arg)
{
    struct side *side = arg;
    char own[700];
    size_t n;

    (void)stream_input(side->stream, &n);
    side->most = n > side->most ? n : side->most;
    if (side_frees(side) || side->untouched)
        return;
    if (draw(4) == 0) {
        use(side, draw(n + 1));
        return;
    }
    use(side, n);
    n = draw(2) ? stream_read(side->stream, own, 1 + draw(sizeof(own))) : 0;
    for (size_t i = 0; i < n; i++)
        side->right &= own[i] == byte_at(side->taken++);
}

static void on_sent(void *arg)
{
    struct side *side = arg;
    size_t n;

    side->sent++;
    CU_ASSERT_EQUAL(stream_unsent(side->stream), 0);
    if (side_frees(side) || !side->empties)
        return;
    (void)stream_input(side->stream, &n);
    use(side, n);
}

static void on_ended(void *arg, int error)
{
    struct side *side = arg;

    side->ended++;
    side->error = error;
    (void)side_frees(side);
}

static const struct stream_ops ops = {
    .readable = on_readable, .sent = on_sent, .ended = on_ended};

static SSL *new_ssl(SSL_CTX *context, bool accepts)
{
    SSL *ssl = SSL_new(context);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ssl);
    if (accepts)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

static void open_side(struct side *side, int fd, SSL *ssl)
{
    struct stream_options options = {
        .ssl = ssl, .max_input = INPUT_BYTES, .write_us = 20000000};

    *side = (struct side){.right = true};
    side->stream = stream_new(t.loop, fd, &options, &ops, side);
    CU_ASSERT_PTR_NOT_NULL_FATAL(side->stream);
}

static void make_pair(int fds[2])
{
    CU_ASSERT_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) ==
                    0);
}

static void open_both(bool tls)
{
    int fds[2];

    make_pair(fds);
    open_side(&t.a, fds[0], tls ? new_ssl(t.server, true) : NULL);
    open_side(&t.b, fds[1], tls ? new_ssl(t.client, false) : NULL);
}

static void close_both(void)
{
    stream_free(t.a.stream);
    stream_free(t.b.stream);
    loop_turn(t.base, 0);
}

/* A turn, though nothing may come to wake the loop. */
static void turn(void)
{
    loop_turn(t.base, 1000);
}

#define WAIT(condition)                            \
    do {                                           \
        time_t until = time(NULL) + GIVE_UP_S;     \
        while (!(condition) && time(NULL) < until) \
            turn();                                \
        CU_ASSERT_TRUE(condition);                 \
    } while (0)

/* Something is written, in one of the ways. What is lent lives in `lent` until
 * it was sent. */
static void write_some(struct side *side, char lent[], size_t most)
{
    size_t n = 1 + draw(draw(8) ? 500 : most);
    unsigned how = (unsigned)draw(3);
    char *to = lent;

    if (how > 0)
        to = stream_room(side->stream, n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(to);
    for (size_t i = 0; i < n; i++)
        to[i] = byte_at(side->written++);
    if (how == 0)
        stream_lend(side->stream, lent, n);
    else
        stream_wrote(side->stream, n);
    if (how == 1)
        stream_push(side->stream);
}

static void toggle(struct side *side)
{
    if (draw(10) == 0)
        stream_pause(side->stream, draw(2));
    if (draw(5) == 0)
        stream_again(side->stream);
}

static void converse(bool tls)
{
    enum { BYTES = 200000 };
    static char lent[2][BYTES];
    uint32_t steps = cases_of(3000);

    open_both(tls);
    for (uint32_t i = 0; i < steps; i++) {
        struct side *side = draw(2) ? &t.a : &t.b;

        if (stream_unsent(side->stream) == 0)
            write_some(side, lent[side == &t.a], BYTES);
        toggle(side);
        loop_turn(t.base, 0);
    }
    stream_pause(t.a.stream, false);
    stream_pause(t.b.stream, false);
    WAIT((stream_again(t.a.stream), stream_again(t.b.stream),
          t.a.taken == t.b.written && t.b.taken == t.a.written));
    CU_ASSERT(t.a.right && t.b.right);
    CU_ASSERT(t.a.most <= INPUT_BYTES && t.b.most <= INPUT_BYTES);
    CU_ASSERT(t.a.sent > 0 && t.b.sent > 0);
    CU_ASSERT(t.a.ended == 0 && t.b.ended == 0);
    close_both();
}

static void test_plain(void)
{
    converse(false);
}

static void test_tls(void)
{
    converse(true);
}

/* More comes than a side takes that uses nothing. */
static void fill_input(bool tls)
{
    open_both(tls);
    t.a.untouched = true;
    char *to = stream_room(t.b.stream, 4 * INPUT_BYTES);
    for (size_t i = 0; i < 4 * INPUT_BYTES; i++)
        to[i] = byte_at(i);
    stream_wrote(t.b.stream, 4 * INPUT_BYTES);
    WAIT(t.a.most == INPUT_BYTES);
}

/* Input that nobody uses ends at its bound, and is there when it is read. */
static void check_bound(bool tls)
{
    fill_input(tls);
    turn();
    CU_ASSERT_EQUAL(t.a.most, INPUT_BYTES);
    t.a.untouched = false;
    WAIT((stream_again(t.a.stream), t.a.taken == 4 * INPUT_BYTES));
    CU_ASSERT(t.a.right);
    close_both();
}

static void test_bound(void)
{
    check_bound(false);
    check_bound(true);
}

/* Whoever makes room in `sent` gets what comes then. */
static void test_used_in_sent(void)
{
    for (int tls = 0; tls < 2; tls++) {
        fill_input(tls);
        t.a.untouched = false;
        t.a.empties = true;
        stream_flush(t.a.stream);
        WAIT(t.a.sent > 0);
        t.a.empties = false;
        WAIT(t.a.taken > 3 * INPUT_BYTES);
        CU_ASSERT(t.a.right);
        close_both();
    }
}

/* The loop's memory need not be zero. */
static void test_held_at_first(void)
{
    CU_ASSERT_EQUAL(stream_loop_held(t.loop), 0);
}

/* What it left may be all that has come. */
static bool took_one(struct side *side)
{
    stream_again(side->stream);
    return side->taken == 1;
}

static void test_ends(void)
{
    for (int tls = 0; tls < 2; tls++) {
        open_both(tls);
        CU_ASSERT_EQUAL(stream_write(t.b.stream, "", 1), 0);
        WAIT(took_one(&t.a));
        stream_shut(t.b.stream);
        WAIT(t.a.ended > 0);
        CU_ASSERT_EQUAL(t.a.error, 0);
        /* the other way still goes */
        CU_ASSERT_EQUAL(stream_write(t.a.stream, "", 1), 0);
        WAIT(took_one(&t.b));
        close_both();

        open_both(tls);
        CU_ASSERT_EQUAL(stream_write(t.b.stream, "", 1), 0);
        WAIT(took_one(&t.a));
        CU_ASSERT_EQUAL(stream_write(t.a.stream, "", 1), 0);
        WAIT(took_one(&t.b));    /* else the kernel tells of what is unread */
        stream_free(t.b.stream); /* TLS did not end */
        t.b.stream = NULL;
        WAIT(t.a.ended > 0);
        CU_ASSERT_EQUAL(t.a.error, tls ? -ECONNRESET : 0);
        close_both();
    }
}

/* Each callback may free its stream. */
static void test_frees(void)
{
    for (int tls = 0; tls < 2; tls++)
        for (int i = 0; i < 3; i++) {
            open_both(tls);
            CU_ASSERT_EQUAL(stream_write(t.b.stream, "", 1), 0);
            WAIT(took_one(&t.a));
            t.a.frees = true;
            if (i == 0)
                CU_ASSERT_EQUAL(stream_write(t.b.stream, "xy", 2), 0);
            if (i == 1)
                CU_ASSERT_EQUAL(stream_write(t.a.stream, "xy", 2), 0);
            if (i == 2)
                stream_shut(t.b.stream);
            WAIT(!t.a.stream);
            close_both();
        }
}

/* Whoever takes nothing is given up. */
static void test_stalled(void)
{
    struct stream_options options = {.max_input = 100, .write_us = 20000};
    int fds[2];

    make_pair(fds);
    t.a = (struct side){.right = true};
    t.a.stream = stream_new(t.loop, fds[0], &options, &ops, &t.a);
    char *to = stream_room(t.a.stream, 4 << 20);
    memset(to, 0, 4 << 20);
    stream_wrote(t.a.stream, 4 << 20);
    WAIT(t.a.ended > 0);
    CU_ASSERT_EQUAL(t.a.error, -ETIMEDOUT);
    CU_ASSERT_EQUAL(t.a.sent, 0);
    stream_free(t.a.stream);
    close(fds[1]);
}

/* HTTP where TLS is expected gets an answer that it understands; other bytes
 * end the stream. */
static void test_no_tls(void)
{
    static const char *const begins[] = {"GET / HTTP/1.1\r\n\r\n",
                                         "\n\n\n\n\n"};

    for (int i = 0; i < 2; i++) {
        char answer[8] = "";
        ssize_t n = 0;
        int fds[2];

        make_pair(fds);
        open_side(&t.a, fds[0], new_ssl(t.server, true));
        CU_ASSERT(write(fds[1], begins[i], strlen(begins[i])) > 0);
        WAIT(t.a.ended > 0);
        CU_ASSERT_EQUAL(t.a.error, -EPROTO);
        CU_ASSERT_EQUAL(stream_is_plain_http(t.a.stream), i == 0);
        if (i == 0) {
            CU_ASSERT_EQUAL(stream_write(t.a.stream, "plain", 5), 0);
            WAIT(n > 0 || (n = read(fds[1], answer, sizeof(answer))) > 0);
            CU_ASSERT_STRING_EQUAL(answer, "plain");
        }
        stream_free(t.a.stream);
        close(fds[1]);
    }
}

/* A certificate of its own for the server. */
static bool certify(SSL_CTX *context)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();

    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    bool done = X509_sign(x, key, EVP_sha256()) > 0 &&
                SSL_CTX_use_certificate(context, x) == 1 &&
                SSL_CTX_use_PrivateKey(context, key) == 1;
    X509_free(x);
    EVP_PKEY_free(key);
    return done;
}

static int set_up(void)
{
    const uint64_t modes =
        SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER;

    signal(SIGPIPE, SIG_IGN);
    t.bits = 4711;
    t.base = loop_new();
    t.loop = stream_loop_new(t.base);
    t.server = SSL_CTX_new(TLS_server_method());
    t.client = SSL_CTX_new(TLS_client_method());
    if (!t.base || !t.loop || !t.server || !t.client)
        return -1;
    SSL_CTX_set_mode(t.server, modes);
    SSL_CTX_set_mode(t.client, modes);
    SSL_CTX_set_read_ahead(t.server, 1);
    return certify(t.server) ? 0 : -1;
}

static int clean_up(void)
{
    SSL_CTX_free(t.server);
    SSL_CTX_free(t.client);
    stream_loop_free(t.loop);
    loop_free(t.base);
    return 0;
}

static const struct suite_test tests[] = {
    {"held at first", test_held_at_first},
    {"plain", test_plain},
    {"TLS", test_tls},
    {"bound of the input", test_bound},
    {"used when something was sent", test_used_in_sent},
    {"ends", test_ends},
    {"freed in a callback", test_frees},
    {"stalled", test_stalled},
    {"no TLS", test_no_tls},
};

int main(void)
{
    int failed = set_up() || SUITE_RUN("stream", tests);

    return clean_up() || failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
