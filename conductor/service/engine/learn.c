/* Learns the costs of an engine and of its model from its answers. */
#include "base/log.h"
#include "conductor/service/models.h"

static void promise(struct service *s)
{
    s->costs.predicts = true;
    s->costs.source = "learned";
    s->dispatch.unpredicted = false;
    if (service_make_scheduler(s, 1, 0, true))
        log_warn("model %s: out of memory: limits reject no request",
                 s->config.model);
    else
        log_info(
            "model %s: learned the cost of a prefill: %.3f ms and %.1f us per "
            "token",
            s->config.model, s->costs.model.prefill[0] / 1e3,
            s->costs.model.prefill[1]);
}

/* Writes the engine's own costs if they differ from its model's. changed: this
 * may have changed, so switch the costs if needed, and log it. */
static void own_costs(struct engine *e, bool changed)
{
    struct service *s = e->service;
    bool unlike = e->prefills.unlike || e->steps.unlike;
    const struct cost_model before =
        e->own_cost ? *e->own_cost : s->costs.model;
    struct learned own = e->prefills.unlike ? e->learned : s->engines.learned;

    if (unlike) {
        own.step_us =
            e->steps.unlike ? e->learned.step_us : s->engines.learned.step_us;
        e->cost = s->costs.model;
        learned_write(&own, &e->cost);
    }
    if (!changed || (!unlike && !e->own_cost))
        return;
    /* The pool must take the costs anew, even if their address is the same. */
    pool_set_cost(s->pool, e->id, NULL);
    e->own_cost = unlike ? &e->cost : NULL;
    pool_set_cost(s->pool, e->id, e->own_cost);
    pool_predict_again(s->pool, e->id, &before,
                       unlike ? &e->cost : &s->costs.model);
    log_info("engine %s: its costs %s", e->config->name,
             unlike ? "differ from those of its model"
                    : "equal those of its model again");
}

/* Whether its costs come from a file of its own. */
static bool has_file(const struct engine *e)
{
    return e->own_cost && e->own_cost != &e->cost;
}

static bool can_be(int64_t n)
{
    return n > 0 && n <= COST_MODEL_MAX_US;
}

static void learn_step(struct learned *l, const struct steps_step *step)
{
    learned_prefill(l, step->tokens, step->us);
    learned_waited(l, step->prompts - 1, step->left_one);
}

void engine_learn_prefill(struct engine *e, const struct steps_step *step)
{
    struct service *s;
    bool changed;

    if (!e || step->prompts == 0 || !can_be(step->tokens) || !can_be(step->us))
        return;
    e->count.timed += step->prompts;
    s = e->service;
    if (*s->config.cost_model)
        return;
    changed = !has_file(e) && alike_see(&e->prefills, &s->engines.prefills,
                                        step->tokens, step->us);
    learn_step(&e->learned, step);
    if (!e->prefills.unlike) {
        learn_step(&s->engines.learned, step);
        learned_write(&s->engines.learned, &s->costs.model);
    }
    if (!s->costs.predicts && learned_enough(&s->engines.learned))
        promise(s);
    own_costs(e, changed);
}

void engine_learn_step(struct engine *e, int64_t us)
{
    struct service *s;
    bool changed;

    if (!e || !can_be(us))
        return;
    s = e->service;
    changed = !*s->config.cost_model && !has_file(e) &&
              alike_see(&e->steps, &s->engines.steps, 0, us);
    learned_step(&e->learned, us);
    if (!e->steps.unlike)
        learned_step(&s->engines.learned, us);
    if (changed)
        own_costs(e, true);
}

void engine_learn_whole(struct engine *e, int64_t computed_tokens,
                        int64_t tokens, int64_t us)
{
    struct learned_whole told =
        learned_whole(&e->learned, computed_tokens, tokens, us);

    engine_learn_prefill(e, &(struct steps_step){.tokens = computed_tokens,
                                                 .us = told.prefill_us,
                                                 .prompts = 1});
    engine_learn_step(e, told.step_us);
}

void engine_forget_costs(struct engine *e)
{
    bool prefills = alike_forget(&e->prefills, &e->service->engines.prefills);
    bool steps = alike_forget(&e->steps, &e->service->engines.steps);

    if (prefills || steps)
        own_costs(e, true);
}
