/* Transfers on links. See traffic.h. */
#include "conductor/core/plan/traffic.h"

#include "conductor/core/pool/pool.h"
#include "predictor/cost_model.h"

static double link_us(const struct pool_instance *i, double bytes)
{
    return i->link_bytes_per_s > 0.0 ? bytes * 1e6 / i->link_bytes_per_s : 0.0;
}

double traffic_fetch_us(const struct pool_instance *sender, double us,
                        int64_t now_us)
{
    double pushes_us = link_us(sender, (double)sender->push_out_bytes);
    double work_us =
        (double)(pool_running_left_us(sender, now_us) + sender->load.cost_us);
    double shared_us;

    if (pushes_us >= work_us)
        return us + pushes_us;
    shared_us = us / (1.0 - pushes_us / work_us);
    return shared_us < us + pushes_us ? shared_us : us + pushes_us;
}

double traffic_late_us(const struct pool_instance *i,
                       int64_t kv_bytes_per_token)
{
    double bytes = (double)i->push_out_bytes -
                   (double)i->prefill_tokens * (double)kv_bytes_per_token;

    return bytes > 0.0 ? link_us(i, bytes) / 2.0 : 0.0;
}

static double greater(double a, double b)
{
    return a > b ? a : b;
}

double traffic_held_up_us(const struct pool_instance *prefill, int64_t n_tokens,
                          int64_t kv_bytes_per_token, int64_t ttft_us,
                          double anywhere_us)
{
    double own_us, pushes_us;

    if (prefill->n_pushes_out == 0)
        return 0.0;
    own_us = link_us(prefill, (double)n_tokens * (double)kv_bytes_per_token);
    pushes_us = link_us(prefill, (double)prefill->push_out_bytes) -
                traffic_late_us(prefill, kv_bytes_per_token);
    return greater(greater((double)ttft_us, own_us + pushes_us) -
                       greater((double)ttft_us, own_us + anywhere_us),
                   0.0);
}

static double bytes_of(const struct traffic_push *push)
{
    return (double)push->n_tokens * (double)push->kv_bytes_per_token;
}

static int64_t whole_us(double us)
{
    return us < (double)COST_MODEL_MAX_US ? (int64_t)us : COST_MODEL_MAX_US;
}

int64_t traffic_behind_us(const struct pool_instance *decode,
                          const struct traffic_push *push)
{
    double left_us = (double)(push->due_us - push->now_us);
    double own_us = link_us(decode, bytes_of(push));
    double ahead_us = link_us(decode, (double)decode->push_in_bytes);

    return whole_us(greater(left_us, ahead_us + own_us) -
                    greater(left_us, own_us));
}

struct traffic_beside traffic_beside(const struct pool_instance *decode,
                                     const struct traffic_push *push)
{
    double left_us = (double)(push->due_us - push->now_us);
    double own_us = link_us(decode, bytes_of(push));
    double longest_us = 0.0;
    double shared_us = own_us;

    for (size_t i = 0; i < decode->n_decodes; i++) {
        double us = link_us(decode, (double)decode->decodes[i].push_bytes);

        longest_us = greater(longest_us, us);
        shared_us += us < own_us ? us : own_us;
    }
    return (struct traffic_beside){
        .longest_us = whole_us(longest_us),
        .late_us =
            whole_us(greater(left_us, shared_us) - greater(left_us, own_us)),
    };
}

/* Returns when an instance will have received a push and all due before it. */
static double received_us(const struct pool_instance *decode,
                          const struct traffic_push *push)
{
    double us = link_us(decode, bytes_of(push));
    double begin_us = (double)push->due_us - us;
    double late_us = (double)push->now_us;
    double ahead_us = 0.0;

    if (decode->push_in_bytes > 0)
        ahead_us = link_us(decode, (double)decode->push_in_bytes);
    if (ahead_us + us <= (double)(push->due_us - push->now_us))
        return (double)push->due_us;
    for (size_t i = 0; i < decode->n_decodes; i++) {
        const struct pool_decode *d = &decode->decodes[i];
        double own_us = link_us(decode, (double)d->push_bytes);

        if (d->push_from == POOL_NO_INSTANCE || d->push_due_us > push->due_us)
            continue;
        if (d->push_due_us <= push->now_us) {
            if (!d->coming) /* its prefill was passed: its time is unknown */
                continue;
            late_us += own_us / 2.0;
            continue;
        }
        us += own_us;
        if ((double)d->push_due_us - own_us < begin_us)
            begin_us = (double)d->push_due_us - own_us;
    }
    return (begin_us > late_us ? begin_us : late_us) + us;
}

double traffic_sent_us(const struct pool_instance *prefill,
                       const struct traffic_push *push)
{
    double own_us = link_us(prefill, bytes_of(push));
    double late_us = traffic_late_us(prefill, push->kv_bytes_per_token) +
                     own_us - (double)(push->due_us - push->now_us);
    double last_us = push->layers > 0 ? own_us / push->layers : own_us;

    return late_us > last_us ? late_us : last_us;
}

int64_t traffic_gap_us(double sent_us, const struct pool_instance *decode,
                       const struct traffic_push *push)
{
    double in_us = received_us(decode, push) - (double)push->due_us;

    return whole_us(greater(in_us, sent_us));
}
