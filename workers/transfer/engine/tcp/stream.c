/* One socket of a data connection: sends and receives without blocking. */
#include <errno.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "workers/transfer/engine/tcp/internal.h"

/* Bytes read at once of a body to be dropped. */
#define WASTE_BYTES (64u << 10)

static size_t out_of(struct tcp_stream *s, struct iovec v[2])
{
    size_t n = 0;

    if (s->out_head_at < s->out_head_n)
        v[n++] = (struct iovec){s->out_head + s->out_head_at,
                                s->out_head_n - s->out_head_at};
    if (s->out_left > 0)
        v[n++] = (struct iovec){(void *)(uintptr_t)s->out, s->out_left};
    return n;
}

static void sent(struct tcp_stream *s, size_t n)
{
    size_t head = s->out_head_n - s->out_head_at;

    if (head > n)
        head = n;
    s->out_head_at += (uint32_t)head;
    s->out += n - head;
    s->out_left -= n - head;
}

int tcp_stream_send(struct tcp_stream *s)
{
    struct iovec v[2];
    size_t n_v;

    while ((n_v = out_of(s, v)) > 0) {
        ssize_t n = net_write(s->io->loop, s->fd, v, n_v);

        if (n < 0)
            return n == -EAGAIN ? 0 : (int)n;
        sent(s, (size_t)n);
    }
    return 1;
}

static int64_t receive(const struct tcp_stream *s, void *to, size_t n)
{
    ssize_t got = net_read(s->io->loop, s->fd, to, n);

    if (got == 0)
        return -ECONNRESET;
    return got == -EAGAIN ? 0 : got;
}

int tcp_stream_head(struct tcp_stream *s, uint32_t n)
{
    while (s->head_got < n) {
        int64_t got = receive(s, s->head + s->head_got, n - s->head_got);

        if (got <= 0)
            return (int)got;
        s->head_got += (uint32_t)got;
    }
    s->head_got = 0;
    return 1;
}

int64_t tcp_stream_body(struct tcp_stream *s)
{
    uint8_t waste[WASTE_BYTES];
    uint64_t most = s->body ? TCP_CHUNK_BYTES : WASTE_BYTES;

    if (most > s->body_left)
        most = s->body_left;
    int64_t got = receive(s, s->body ? s->body : waste, (size_t)most);
    if (got <= 0)
        return got;
    s->body_left -= (uint64_t)got;
    if (s->body)
        s->body += got;
    return got;
}

void tcp_io_wake(struct tcp *t)
{
    for (uint32_t i = 0; i < t->config.streams; i++)
        loop_ring(&t->ios[i].wake);
}
