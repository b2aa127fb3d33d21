/* One network card: its device, its completions, and the state of its port. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

/* Most completions taken by one poll. */
#define TAKE_MAX 32
/* Events of a queue acknowledged by one call, which takes a lock. */
#define ACKNOWLEDGE_AT 64u

/* Opens the device `name`. Returns NULL if there is none or it fails. */
static struct ibv_context *open_device(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *verbs = NULL;

    for (int i = 0; list && list[i] && !verbs; i++)
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            verbs = ibv_open_device(list[i]);
    if (list)
        ibv_free_device_list(list);
    return verbs;
}

static int read_port(struct card *c)
{
    struct ibv_device_attr device;
    struct ibv_port_attr port;

    if (ibv_query_device(c->verbs, &device) != 0 ||
        ibv_query_port(c->verbs, 1, &port) != 0)
        return -EIO;
    int reads = device.max_qp_rd_atom < device.max_qp_init_rd_atom
                    ? device.max_qp_rd_atom
                    : device.max_qp_init_rd_atom;
    c->reads =
        (uint8_t)(reads < (int)RDMA_READS_MAX ? reads : (int)RDMA_READS_MAX);
    c->mtu = port.active_mtu;
    c->lid = port.lid;
    c->up = port.state == IBV_PORT_ACTIVE;
    return card_find_gid(c, port.gid_tbl_len);
}

void card_take(struct card *c)
{
    struct ibv_wc list[TAKE_MAX];
    int n;

    do {
        n = ibv_poll_cq(c->cq, TAKE_MAX, list);
        for (int i = 0; i < n; i++)
            c->rdma->up->completed(c, &list[i]);
    } while (n == TAKE_MAX);
}

/* Takes all completions, after asking for an event for later ones. */
static void on_completion(void *arg, unsigned)
{
    struct card *c = arg;
    struct ibv_cq *cq;
    void *context;

    while (ibv_get_cq_event(c->channel, &cq, &context) == 0)
        c->n_events++;
    if (c->n_events >= ACKNOWLEDGE_AT) {
        ibv_ack_cq_events(c->cq, c->n_events);
        c->n_events = 0;
    }
    if (ibv_req_notify_cq(c->cq, 0) != 0)
        rdma_log(c->rdma, LOG_ERROR, "rdma: %s reports no completions",
                 c->nic.name);
    card_take(c);
    c->rdma->up->turn(c->rdma);
}

static void on_async(void *arg, unsigned)
{
    struct card *c = arg;
    struct ibv_async_event event;

    while (ibv_get_async_event(c->verbs, &event) == 0) {
        enum ibv_event_type type = event.event_type;

        ibv_ack_async_event(&event);
        if (type == IBV_EVENT_PORT_ACTIVE)
            c->rdma->up->card_changed(c, true);
        else if (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_DEVICE_FATAL)
            c->rdma->up->card_changed(c, false);
    }
}

void card_take_jobs(struct card *c)
{
    struct job *job;
    uint64_t n;

    if (read(c->jobs.bell, &n, sizeof(n)) < 0)
        return;
    while ((job = job_thread_over(&c->jobs)))
        c->rdma->up->job_over(job);
}

static void on_over(void *arg, unsigned)
{
    struct card *c = arg;

    card_take_jobs(c);
    c->rdma->up->turn(c->rdma);
}

static int watch(struct card *c)
{
    struct loop *loop = c->rdma->config.loop;
    int completions = c->channel->fd, asyncs = c->verbs->async_fd;

    if (fcntl(completions, F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(asyncs, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    loop_watch_init(loop, &c->completion, completions, LOOP_READ, on_completion,
                    c);
    loop_watch_init(loop, &c->async, asyncs, LOOP_READ, on_async, c);
    loop_watch_init(loop, &c->over, c->jobs.bell, LOOP_READ, on_over, c);
    if (loop_watch_start(&c->completion, 0) < 0 ||
        loop_watch_start(&c->async, 0) < 0 || loop_watch_start(&c->over, 0) < 0)
        return -ENOMEM;
    return ibv_req_notify_cq(c->cq, 0) == 0 ? 0 : -EIO;
}

/* Returns how many completions the queue must have room for: of all asking end
 * points, and of as many dying ones. */
static int completions_of(const struct rdma *r)
{
    return (int)(2 * r->config.end_points * (r->spread.credits + 1));
}

int card_open(struct card *c, char *err, size_t err_bytes)
{
    const char *name = c->nic.name;
    int rc;

    c->verbs = open_device(name);
    if (!c->verbs)
        return error_say(err, err_bytes, -ENODEV, "%s cannot be opened", name);
    rc = read_port(c);
    if (rc < 0)
        return error_say(err, err_bytes, rc, "%s has no address", name);
    c->pd = ibv_alloc_pd(c->verbs);
    c->channel = ibv_create_comp_channel(c->verbs);
    if (!c->pd || !c->channel)
        return error_say(err, err_bytes, -ENOMEM, "%s: no memory", name);
    c->cq = ibv_create_cq(c->verbs, completions_of(c->rdma), c, c->channel, 0);
    if (!c->cq)
        return error_say(err, err_bytes, -EINVAL,
                         "%s supports no queue of %d completions: set fewer "
                         "credits or end points",
                         name, completions_of(c->rdma));
    rc = job_thread_start(&c->jobs);
    if (rc == 0)
        rc = watch(c);
    return rc == 0 ? 0 : error_say(err, err_bytes, rc, "%s: no memory", name);
}

void card_close(struct card *c)
{
    loop_watch_stop(&c->completion);
    loop_watch_stop(&c->async);
    loop_watch_stop(&c->over);
    job_thread_stop(&c->jobs);
    for (uint32_t i = 0; i < TRANSPORT_REGIONS_MAX; i++)
        if (c->regions[i])
            ibv_dereg_mr(c->regions[i]);
    if (c->cq) {
        ibv_ack_cq_events(c->cq, c->n_events);
        ibv_destroy_cq(c->cq);
    }
    if (c->channel)
        ibv_destroy_comp_channel(c->channel);
    if (c->pd)
        ibv_dealloc_pd(c->pd);
    if (c->verbs)
        ibv_close_device(c->verbs);
    *c = (struct card){0};
}
