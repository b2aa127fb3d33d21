/* See news.h. */
#include "sim/views/news.h"

#include <errno.h>
#include <stdlib.h>

#define CAPACITY_FIRST 1024u

static struct sim_news_item *at(const struct sim_news *news, size_t i)
{
    return &news->items[(news->first + i) & (news->capacity - 1)];
}

static int grow(struct sim_news *news)
{
    size_t capacity = news->capacity > 0 ? 2 * news->capacity : CAPACITY_FIRST;
    struct sim_news_item *items = calloc(capacity, sizeof(*items));

    if (!items)
        return -ENOMEM;
    for (size_t i = 0; i < news->n; i++)
        items[i] = *at(news, i);
    free(news->items);
    news->items = items;
    news->capacity = capacity;
    news->first = 0;
    return 0;
}

int sim_news_tell(struct sim_news *news, const struct sim_news_item *item,
                  int64_t now_us)
{
    struct sim_news_item *last;

    if (news->n == news->capacity && grow(news) < 0)
        return -ENOMEM;
    last = at(news, news->n++);
    *last = *item;
    last->due_us = now_us + news->delay_us;
    return 0;
}

const struct sim_news_item *sim_news_first(const struct sim_news *news)
{
    return news->n > 0 ? at(news, 0) : NULL;
}

void sim_news_arrived(struct sim_news *news)
{
    free(at(news, 0)->sent);
    news->first = (news->first + 1) & (news->capacity - 1);
    news->n--;
}

void sim_news_fini(struct sim_news *news)
{
    while (news->n > 0)
        sim_news_arrived(news);
    free(news->items);
    *news = (struct sim_news){.delay_us = news->delay_us};
}
