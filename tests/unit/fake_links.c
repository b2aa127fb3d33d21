/* Worker links without sockets. See fake_links.h. */
#include "tests/unit/fake_links.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/loop/loop.h"

struct worker_links {
    struct loop *loop;
    const struct worker_link_ops *ops;
    void *arg;
};

int64_t fake_now_us;

static struct worker_links the_links;
static fake_sent_fn *on_sent;
static void *sent_arg;

int64_t clock_now_us(void)
{
    return fake_now_us;
}

int64_t clock_wall_us(void)
{
    return fake_now_us;
}

void fake_links_watch(fake_sent_fn *sent, void *arg)
{
    on_sent = sent;
    sent_arg = arg;
}

struct worker_links *fake_links(void)
{
    return &the_links;
}

struct worker_links *worker_links_new(struct loop *loop,
                                      const struct worker_links_config *config,
                                      const struct worker_link_ops *ops,
                                      void *arg, char err[MSG_TEXT_MAX])
{
    (void)config;
    (void)err;
    the_links = (struct worker_links){.loop = loop, .ops = ops, .arg = arg};
    return &the_links;
}

void worker_links_free(struct worker_links *l)
{
    (void)l;
}

void worker_links_tls(struct worker_links *l, struct ssl_ctx_st *certificate)
{
    (void)l;
    (void)certificate;
}

uint16_t worker_links_port(const struct worker_links *l)
{
    (void)l;
    return 0;
}

static size_t frame_at(const struct wire_buf *buf, size_t at,
                       struct frame_header *h)
{
    if (frame_header_decode(buf->data + at, FRAME_PAYLOAD_MAX_BYTES, h))
        abort();
    return FRAME_HEADER_BYTES + h->length;
}

void worker_link_send(struct worker_link *link, const struct wire_buf *buf)
{
    struct frame_header h;

    for (size_t at = 0; at < buf->len;) {
        size_t n = frame_at(buf, at, &h);

        on_sent(sent_arg, link, &h, buf->data + at + FRAME_HEADER_BYTES);
        at += n;
    }
}

void worker_link_resume(struct worker_link *link)
{
    link->resumed = true;
    if (link->offered)
        fake_link_offer(link, link->offered);
}

void worker_link_set_owner(struct worker_link *link, void *p)
{
    link->owner = p;
}

void *worker_link_owner(const struct worker_link *link)
{
    return link->owner;
}

int64_t worker_link_last_frame_us(const struct worker_link *link)
{
    (void)link;
    return fake_now_us;
}

void fake_link_offer(struct worker_link *link, const struct wire_buf *buf)
{
    struct frame_header h;

    (void)frame_at(buf, 0, &h);
    link->offered = buf;
    if (the_links.ops->frame(the_links.arg, link, &h,
                             buf->data + FRAME_HEADER_BYTES) != FRAME_AGAIN)
        link->offered = NULL;
}

uint16_t fake_link_join(struct worker_link *link, const struct msg_hello *hello)
{
    struct msg_welcome welcome = {.instance_id = 0};
    char text[MSG_TEXT_MAX];

    link->links = &the_links;
    uint16_t code = the_links.ops->joined(the_links.arg, link, hello,
                                          "127.0.0.1", &welcome, text);

    if (code)
        fprintf(stderr, "%s is refused: %s\n", hello->name, text);
    return code;
}

int fake_link_deliver(struct worker_link *link, struct wire_buf *buf)
{
    struct frame_header h;
    int rc = 0;

    for (size_t at = 0; at < buf->len && rc == 0;) {
        size_t n = frame_at(buf, at, &h);

        rc = the_links.ops->frame(the_links.arg, link, &h,
                                  buf->data + at + FRAME_HEADER_BYTES);
        if (rc != FRAME_AGAIN) {
            at += n;
            continue;
        }
        for (link->resumed = false; !link->resumed; link->turns++)
            (void)loop_turn(the_links.loop, -1);
        rc = 0;
    }
    wire_buf_reset(buf);
    return rc;
}
